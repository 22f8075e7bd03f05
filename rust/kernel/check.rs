// SPDX-License-Identifier: GPL-2.0

//! Assertions for KUnit tests.

/// Fails the test by returning an error, so that destructors run. KUnit's own assertions kill the
/// thread and leak its objects, and a device would wait forever for these objects.
macro_rules! check {
    ($condition:expr) => {
        if !$condition {
            pr_err!(
                "{}:{}: not true: {}\n",
                file!(),
                line!(),
                stringify!($condition)
            );
            return Err(EINVAL);
        }
    };
}

/// Fails the test, as [`check`] does, unless the two values are equal.
macro_rules! check_eq {
    ($left:expr, $right:expr) => {
        let (left, right) = (&$left, &$right);
        if left != right {
            pr_err!(
                "{}:{}: {} is {}, not {}\n",
                file!(),
                line!(),
                stringify!($left),
                format_args!("{:?}", left),
                format_args!("{:?}", right)
            );
            return Err(EINVAL);
        }
    };
}

pub(crate) use {
    check,
    check_eq, //
};

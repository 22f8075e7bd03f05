// SPDX-License-Identifier: GPL-2.0

//! What KUnit tests check with.

/// Ends the test with an error, but in an orderly way: KUnit's own assertions end the thread with
/// all that it holds, and a device would wait for that for ever.
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

/// [`check`] that two values are the same.
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

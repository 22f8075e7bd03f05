// SPDX-License-Identifier: GPL-2.0

//! Numbers in login strings, by the rules of the kernel's `match_int()` and `kstrtoull()`.

/// Text that is not a usable number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NumberError {
    /// Empty, or characters that do not belong there.
    Syntax,
    /// More than the type holds.
    Overflow,
}

/// An `int`: decimal, octal after `0`, hexadecimal after `0x`; a minus sign is allowed.
pub fn int(text: &str) -> Result<i32, NumberError> {
    let (digits, negative) = match text.strip_prefix('-') {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let value = i64::try_from(base0(digits)?).map_err(|_| NumberError::Overflow)?;
    let value = if negative {
        value.checked_neg()
    } else {
        Some(value)
    };
    value
        .and_then(|value| i32::try_from(value).ok())
        .ok_or(NumberError::Overflow)
}

/// An unsigned number with the same prefixes as [`int`] and no sign.
pub fn base0(text: &str) -> Result<u64, NumberError> {
    match text.strip_prefix('0') {
        None | Some("") => digits(text, 10),
        Some(rest) => match rest.strip_prefix(['x', 'X']) {
            Some(rest) => digits(rest, 16),
            None => digits(rest, 8),
        },
    }
}

/// A hexadecimal number of up to 64 bits; `0x` and a plus sign are allowed.
pub fn hex(text: &str) -> Result<u64, NumberError> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let text = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .unwrap_or(text);
    digits(text, 16)
}

/// Exactly 32 hexadecimal digits.
pub fn hex128(text: &str) -> Result<[u8; 16], NumberError> {
    if text.len() != 32 {
        return Err(NumberError::Syntax);
    }
    let (high, low) = text.split_at_checked(16).ok_or(NumberError::Syntax)?;
    let bytes = (u128::from(digits(high, 16)?) << 64) | u128::from(digits(low, 16)?);
    Ok(bytes.to_be_bytes())
}

/// The text before and after the first `separator`, an ASCII character. Unlike `str::split_once()`
/// it brings no arithmetic that the compiler cannot prove right.
pub(super) fn split(text: &str, separator: u8) -> Option<(&str, &str)> {
    let before = text.bytes().take_while(|&byte| byte != separator).count();
    let (before, after) = text.split_at_checked(before)?;
    Some((before, after.get(1..)?))
}

fn digits(text: &str, radix: u8) -> Result<u64, NumberError> {
    if text.is_empty() {
        return Err(NumberError::Syntax);
    }
    // The whole text is checked, so that a wrong character is reported as such in a long number
    // too.
    let mut value = Some(0u64);
    for c in text.chars() {
        let digit = c.to_digit(radix.into()).ok_or(NumberError::Syntax)?;
        value = value
            .and_then(|value| value.checked_mul(radix.into()))
            .and_then(|value| value.checked_add(digit.into()));
    }
    value.ok_or(NumberError::Overflow)
}

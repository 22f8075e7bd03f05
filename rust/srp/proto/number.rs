// SPDX-License-Identifier: GPL-2.0

//! Numbers in login strings, by the rules of the kernel's `match_int()` and `kstrtoull()`.

/// Why a string is not a usable number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NumberError {
    /// The string is empty or has an invalid character.
    Syntax,
    /// The number does not fit into the type.
    Overflow,
}

/// Parses an `int`: decimal, octal after `0`, hexadecimal after `0x`; a minus sign is allowed.
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

/// Parses an unsigned number with the same prefixes as [`int`] and no sign.
pub fn base0(text: &str) -> Result<u64, NumberError> {
    match text.strip_prefix('0') {
        None | Some("") => digits(text, 10),
        Some(rest) => match rest.strip_prefix(['x', 'X']) {
            Some(rest) => digits(rest, 16),
            None => digits(rest, 8),
        },
    }
}

/// Parses a hexadecimal number of up to 64 bits; `0x` and a plus sign are allowed.
pub fn hex(text: &str) -> Result<u64, NumberError> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let text = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .unwrap_or(text);
    digits(text, 16)
}

/// Parses exactly 32 hexadecimal digits.
pub fn hex128(text: &str) -> Result<[u8; 16], NumberError> {
    if text.len() != 32 {
        return Err(NumberError::Syntax);
    }
    let (high, low) = text.split_at_checked(16).ok_or(NumberError::Syntax)?;
    let bytes = (u128::from(digits(high, 16)?) << 64) | u128::from(digits(low, 16)?);
    Ok(bytes.to_be_bytes())
}

/// The text before and after the first `separator`, an ASCII character. Unlike `str::split_once()`,
/// it needs no overflow checks.
pub(super) fn split(text: &str, separator: u8) -> Option<(&str, &str)> {
    let before = text.bytes().take_while(|&byte| byte != separator).count();
    let (before, after) = text.split_at_checked(before)?;
    Some((before, after.get(1..)?))
}

fn digits(text: &str, radix: u8) -> Result<u64, NumberError> {
    if text.is_empty() {
        return Err(NumberError::Syntax);
    }
    // Check all characters, so that an invalid one is a syntax error even after an overflow.
    let mut value = Some(0u64);
    for c in text.chars() {
        let digit = c.to_digit(radix.into()).ok_or(NumberError::Syntax)?;
        value = value
            .and_then(|value| value.checked_mul(radix.into()))
            .and_then(|value| value.checked_add(digit.into()));
    }
    value.ok_or(NumberError::Overflow)
}

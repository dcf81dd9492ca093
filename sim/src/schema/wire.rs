//! The binary form (protocol buffers) as it is on the wire: a message is fields, each a number and what it holds.
//!
//! What a field is never belongs here: `binary` has that from `kubernetes.txt`, and `json_schema` from its own tables.

use serde_json::Value;

/// One field as it is on the wire.
pub(crate) enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in the order in which they come; `None` if it is cut short or no message.
pub(crate) fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Wire<'_>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let wire = match tag & 7 {
            0 => Wire::Number(varint(&mut bytes)?),
            1 => Wire::Number(u64::from_le_bytes(take(&mut bytes, 8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                Wire::Bytes(take(&mut bytes, length)?)
            }
            5 => Wire::Number(u64::from(u32::from_le_bytes(take(&mut bytes, 4)?.try_into().ok()?))),
            _ => return None,
        };
        fields.push((tag >> 3, wire));
    }
    Some(fields)
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(head)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// A field of one number, as bytes.
pub(super) fn inside(bytes: &[u8], number: u64) -> Option<&[u8]> {
    fields(bytes)?.into_iter().find_map(|(at, wire)| match wire {
        Wire::Bytes(bytes) if at == number => Some(bytes),
        _ => None,
    })
}

pub(super) fn number(bytes: &[u8], number: u64) -> Option<u64> {
    fields(bytes)?.into_iter().find_map(|(at, wire)| match wire {
        Wire::Number(value) if at == number => Some(value),
        _ => None,
    })
}

pub(super) fn text(bytes: &[u8]) -> Option<Value> {
    std::str::from_utf8(bytes).ok().map(Value::from)
}

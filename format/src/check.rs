//! Fields whose value follows from others.

use crate::{Error, bytes::wide, error::Table};

#[inline]
pub(crate) fn value(
    table: Table,
    field: &'static str,
    entry: usize,
    expected: u64,
    found: u64,
) -> Result<(), Error> {
    if expected == found {
        Ok(())
    } else {
        Err(value_error(table, field, entry, expected, found))
    }
}

#[cold]
pub(crate) fn value_error(
    table: Table,
    field: &'static str,
    entry: usize,
    expected: u64,
    found: u64,
) -> Error {
    Error::Value {
        table,
        field,
        entry: wide(entry),
        expected,
        found,
    }
}

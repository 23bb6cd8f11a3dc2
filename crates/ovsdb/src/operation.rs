//! What a transaction does, operation by operation (RFC 7047, 5.2).

use json::{Object, Value};

use crate::datum::{Atom, Datum, Row, Uuid, number};

/// Which rows an operation is about.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// The column holds exactly this.
    Is(&'static str, Datum),
    /// The column holds at least this.
    Includes(&'static str, Datum),
}

/// One step of a transaction: all of them are done, or none.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Reads columns of the rows that meet all conditions.
    Select {
        /// The table.
        table: &'static str,
        /// Which rows.
        conditions: Vec<Condition>,
        /// Which columns.
        columns: &'static [&'static str],
    },
    /// Makes a row.
    Insert {
        /// The table.
        table: &'static str,
        /// Its columns.
        row: Row,
        /// What other operations of the same transaction call it.
        name: &'static str,
    },
    /// Adds values to a column that holds a set.
    AddTo {
        /// The table.
        table: &'static str,
        /// Which rows.
        conditions: Vec<Condition>,
        /// The column.
        column: &'static str,
        /// The values.
        values: Vec<Atom>,
    },
    /// Takes values out of a column that holds a set.
    TakeFrom {
        /// The table.
        table: &'static str,
        /// Which rows.
        conditions: Vec<Condition>,
        /// The column.
        column: &'static str,
        /// The values.
        values: Vec<Atom>,
    },
    /// Counts a column of every row up by one.
    Increment {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
    },
}

/// What came of one operation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// What was read.
    pub rows: Vec<Row>,
    /// How many rows were changed.
    pub count: i64,
    /// The row that was made.
    pub uuid: Option<Uuid>,
}

// === impl Condition ===

impl Condition {
    fn print(&self) -> Value {
        let (column, function, datum) = match self {
            Condition::Is(column, datum) => (*column, "==", datum),
            Condition::Includes(column, datum) => (*column, "includes", datum),
        };
        Value::Array(vec![column.into(), function.into(), datum.print()])
    }
}

// === impl Operation ===

impl Operation {
    /// As it is written.
    pub(crate) fn print(&self) -> Value {
        match self {
            Operation::Select { table, conditions, columns } => {
                let columns = columns.iter().map(|column| (*column).into()).collect();
                operation("select", table, [("where", all(conditions)), ("columns", Value::Array(columns))])
            }
            Operation::Insert { table, row, name } => operation("insert", table, [("row", row.print()), ("uuid-name", (*name).into())]),
            Operation::AddTo { table, conditions, column, values } => {
                mutate(table, conditions, [(*column).into(), "insert".into(), Datum::Set(values.clone()).print()])
            }
            Operation::TakeFrom { table, conditions, column, values } => {
                mutate(table, conditions, [(*column).into(), "delete".into(), Datum::Set(values.clone()).print()])
            }
            Operation::Increment { table, column } => mutate(table, &[], [(*column).into(), "+=".into(), number(1)]),
        }
    }
}

fn all(conditions: &[Condition]) -> Value {
    Value::Array(conditions.iter().map(Condition::print).collect())
}

fn mutate(table: &str, conditions: &[Condition], mutation: [Value; 3]) -> Value {
    let mutations = Value::Array(vec![Value::Array(mutation.to_vec())]);
    operation("mutate", table, [("where", all(conditions)), ("mutations", mutations)])
}

fn operation(op: &str, table: &str, keys: [(&str, Value); 2]) -> Value {
    let named = [("op", Value::from(op)), ("table", Value::from(table))];
    Value::Object(named.into_iter().chain(keys).map(|(key, value)| (key.to_owned(), value)).collect::<Object>())
}

// === impl Outcome ===

impl Outcome {
    /// Reads one; `None` if it is none.
    pub(crate) fn parse(value: &Value) -> Option<Self> {
        let object = value.as_object()?;
        let rows = match object.get("rows") {
            Some(rows) => rows.as_array()?.iter().map(Row::parse).collect::<Option<_>>()?,
            None => Vec::new(),
        };
        let count = match object.get("count") {
            Some(Value::Number(count)) => count.as_i64()?,
            _ => 0,
        };
        let uuid = object.get("uuid").and_then(Datum::parse);
        let uuid = uuid.and_then(|uuid| if let Datum::Set(mut atoms) = uuid { atoms.pop() } else { None });
        let uuid = uuid.and_then(|atom| if let Atom::Uuid(uuid) = atom { Some(uuid) } else { None });
        Some(Outcome { rows, count, uuid })
    }
}

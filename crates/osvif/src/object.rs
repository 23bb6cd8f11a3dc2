//! The envelope that oslo.versionedobjects puts around every object:
//! `{"versioned_object.name": ..., ".namespace": "os_vif", ".version": "1.0", ".data": {...}}`.

use serde_json::{Map, Value};

use crate::fields::{self, Fields, text};
use crate::problem::shortened;
use crate::{Problem, Reason};

const NAME: &str = "versioned_object.name";
const NAMESPACE: &str = "versioned_object.namespace";
const VERSION: &str = "versioned_object.version";
const DATA: &str = "versioned_object.data";

/// The version of all lists.
const LIST_VERSION: &str = "1.0";

/// The namespace of all objects here; Kuryr's own have it too.
const OS_VIF: &str = "os_vif";

/// What an object has beside the fields that are known here. That of a new object is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rest {
    /// The version that it was read with, where it is not the one that this crate writes.
    version: Option<String>,
    /// Other fields.
    data: Map<String, Value>,
    /// Other keys of the envelope, as `versioned_object.changes`.
    envelope: Map<String, Value>,
}

/// An object that os_vif knows by one name.
pub(crate) trait Object: Sized {
    /// Its name.
    const NAME: &'static str;
    /// The name of a list of them.
    const LIST: &'static str;
    /// The version that is written.
    const VERSION: &'static str;

    /// Takes what it knows.
    fn read(fields: &mut Fields) -> Result<Self, Problem>;
    /// Puts it back.
    fn write(self, data: &mut Map<String, Value>);
    /// What it does not know.
    fn rest(&mut self) -> &mut Rest;
}

/// Several objects of a kind, which are an object themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct List<T> {
    /// The objects, in order.
    pub objects: Vec<T>,
    /// What else the list has.
    pub rest: Rest,
}

/// An object out of its envelope.
pub(crate) struct Opened {
    pub(crate) name: String,
    pub(crate) fields: Fields,
    rest: Rest,
}

// === impl Opened ===

impl Opened {
    /// Reads the envelope.
    pub(crate) fn of(value: Value) -> Result<Self, Problem> {
        let mut envelope = Fields::of(value)?;
        let name = envelope.required(NAME, text)?;
        let namespace = envelope.required(NAMESPACE, text)?;
        if namespace != OS_VIF {
            return Err(fields::wrong("the namespace os_vif", &namespace).within(NAMESPACE));
        }
        let version = envelope.required(VERSION, text)?;
        let minor = version.strip_prefix("1.").unwrap_or_default();
        if minor.is_empty() || !minor.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            return Err(Problem::of(Reason::Version { name: shortened(&name), version: shortened(&version) }));
        }
        let fields = envelope.required(DATA, Fields::of)?;
        Ok(Opened { name, fields, rest: Rest { version: Some(version), data: Map::new(), envelope: envelope.rest() } })
    }

    /// What was not taken, of an object that is written with this version. One that is read is equal to a new one.
    pub(crate) fn rest(self, written: &str) -> Rest {
        Rest { data: self.fields.rest(), version: self.rest.version.filter(|version| version != written), ..self.rest }
    }
}

// === impl Rest ===

impl Rest {
    /// The object as it is written: what it came with, and over it what `write` puts there.
    pub(crate) fn close(self, name: &str, version: &str, write: impl FnOnce(&mut Map<String, Value>)) -> Value {
        let Rest { version: read, mut data, mut envelope } = self;
        write(&mut data);
        envelope.insert(NAME.to_owned(), name.into());
        envelope.insert(NAMESPACE.to_owned(), OS_VIF.into());
        envelope.insert(VERSION.to_owned(), read.unwrap_or_else(|| version.to_owned()).into());
        envelope.insert(DATA.to_owned(), data.into());
        envelope.into()
    }
}

// === impl List ===

impl<T> From<Vec<T>> for List<T> {
    fn from(objects: Vec<T>) -> Self {
        List { objects, rest: Rest::default() }
    }
}

/// Reads one object.
pub(crate) fn read<T: Object>(value: Value) -> Result<T, Problem> {
    let mut opened = named(value, T::NAME)?;
    let mut object = T::read(&mut opened.fields)?;
    *object.rest() = opened.rest(T::VERSION);
    Ok(object)
}

/// As it is written.
pub(crate) fn write<T: Object>(mut object: T) -> Value {
    std::mem::take(object.rest()).close(T::NAME, T::VERSION, |data| object.write(data))
}

/// Reads a list of objects.
pub(crate) fn read_list<T: Object>(value: Value) -> Result<List<T>, Problem> {
    let mut opened = named(value, T::LIST)?;
    let objects = opened.fields.required("objects", |value| fields::list(value, read))?;
    Ok(List { objects, rest: opened.rest(LIST_VERSION) })
}

/// As it is written.
pub(crate) fn write_list<T: Object>(list: List<T>) -> Value {
    let objects: Vec<Value> = list.objects.into_iter().map(write).collect();
    list.rest.close(T::LIST, LIST_VERSION, |data| put(data, "objects", Some(objects)))
}

/// Puts a field that is given. Nothing is taken away: what was `null` stays so.
pub(crate) fn put(data: &mut Map<String, Value>, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        data.insert(key.to_owned(), value.into());
    }
}

fn named(value: Value, expected: &'static str) -> Result<Opened, Problem> {
    let opened = Opened::of(value)?;
    match opened.name == expected {
        true => Ok(opened),
        false => Err(Problem::of(Reason::Object { expected, found: shortened(&opened.name) })),
    }
}

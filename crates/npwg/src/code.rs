//! Which CNI error code each refusal has.

use cni::{CniError, Code};

use crate::{DefinitionError, MissingCapability, NotHonoured, SelectionErrors};

impl From<SelectionErrors> for CniError {
    /// Code 7.
    fn from(e: SelectionErrors) -> Self {
        CniError::new(Code::INVALID_CONFIG, e.to_string())
    }
}

impl From<DefinitionError> for CniError {
    /// The code that the same configuration would have on disk; 7 for what only a definition can have.
    fn from(e: DefinitionError) -> Self {
        let msg = e.to_string();
        let code = match e {
            DefinitionError::Config { problem, .. } => CniError::from(problem).code,
            DefinitionError::Name { .. } | DefinitionError::NoPlugin(_) => Code::INVALID_CONFIG,
        };
        CniError::new(code, msg)
    }
}

impl From<MissingCapability> for CniError {
    /// Code 7.
    fn from(e: MissingCapability) -> Self {
        CniError::new(Code::INVALID_CONFIG, e.to_string())
    }
}

impl From<NotHonoured> for CniError {
    /// Code 999 where a plugin said that it serves the request, and did not; 7 where none said so.
    fn from(e: NotHonoured) -> Self {
        let code = if e.is_declared { Code::INTERNAL } else { Code::INVALID_CONFIG };
        CniError::new(code, e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Definition;

    #[test]
    fn codes() {
        let of = |config: &str| {
            let config = Some(config.to_owned());
            let definition = Definition { namespace: "a".to_owned(), name: "b".to_owned(), config, resource_name: None, is_neutron: false };
            CniError::from(definition.network().unwrap_err())
        };
        assert_eq!(of("{").code, Code::DECODE);
        assert_eq!(of(r#"{"type":"x","cniVersion":"9.0.0"}"#).code, Code::INCOMPATIBLE_VERSION);
        assert_eq!(of("{}").code, Code::INVALID_CONFIG);
        let e = CniError::from(crate::parse("A", "default").unwrap_err());
        assert!(e.code == Code::INVALID_CONFIG && e.msg.contains("element 1"), "{e}");
    }
}

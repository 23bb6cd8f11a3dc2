//! Any object is read and written again without a loss, or refused; what a later version adds survives wherever it stands.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use netloom_osvif::PodState;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const POD_STATE: &str = include_str!("captured/PodState.annotation");

/// How many values there are, those in others too.
fn places(value: &Value) -> usize {
    1 + match value {
        Value::Array(all) => all.iter().map(places).sum(),
        Value::Object(all) => all.values().map(places).sum(),
        _ => 0,
    }
}

/// Changes the value of that number; whether it was there.
fn change(value: &mut Value, at: &mut usize, with: &mut impl FnMut(&mut Value)) -> bool {
    if *at == 0 {
        with(value);
        return true;
    }
    *at -= 1;
    match value {
        Value::Array(all) => all.iter_mut().any(|one| change(one, at, with)),
        Value::Object(all) => all.values_mut().any(|one| change(one, at, with)),
        _ => false,
    }
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({"versioned_object.data": {}})),
    ]
}

/// `null` and what is missing are the same to a reader, as are two spellings of an address.
fn assert_kept(text: &str) -> Result<(), TestCaseError> {
    let Ok(state) = PodState::parse(text) else { return Ok(()) };
    let printed = state.clone().annotation();
    let again = PodState::parse(&printed).map_err(|e| TestCaseError::fail(format!("{e}: {printed}")))?;
    prop_assert_eq!(again.annotation(), printed);
    Ok(())
}

proptest! {
    #[test]
    fn a_value_that_was_changed_is_kept_or_refused(at in 0..500_usize, with in scalar()) {
        let mut object: Value = serde_json::from_str(POD_STATE).unwrap();
        let mut at = at % places(&object);
        prop_assert!(change(&mut object, &mut at, &mut |value| *value = with.clone()));
        assert_kept(&object.to_string())?;
    }

    #[test]
    fn what_is_added_to_any_object_survives(at in 0..500_usize, with in scalar()) {
        let mut object: Value = serde_json::from_str(POD_STATE).unwrap();
        let mut at = at % places(&object);
        let mut added = false;
        change(&mut object, &mut at, &mut |value| if let Value::Object(all) = value {
            // Interfaces are not fields: each is a VIF.
            added = !all.contains_key("eth1");
            if added { all.insert("a_later_field".to_owned(), with.clone()); }
        });
        if added {
            let state = PodState::parse(&object.to_string()).unwrap();
            prop_assert_eq!(serde_json::from_str::<Value>(&state.annotation()).unwrap(), object);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,60}") {
        assert_kept(&text)?;
        prop_assert!(PodState::parse(&Value::from(Map::from_iter([("eth0".to_owned(), Value::from(text))])).to_string()).is_err());
    }
}

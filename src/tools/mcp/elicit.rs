//! What a server that asks the user is answered when nobody is there: the defaults of its own form, or no. Asks nobody.

use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction};
use serde_json::{Map, Value};

/// The answer to one question. A form is accepted with its defaults when nothing that it requires lacks one.
pub fn answer(asked: &ElicitRequestParams) -> ElicitResult {
    let ElicitRequestParams::FormElicitationParams { requested_schema, .. } = asked else {
        // A page in a browser: nobody can go there.
        return ElicitResult::new(ElicitationAction::Decline);
    };
    match serde_json::to_value(requested_schema)
        .ok()
        .and_then(|schema| defaults(&schema))
    {
        Some(content) => ElicitResult::new(ElicitationAction::Accept).with_content(Value::Object(content)),
        None => ElicitResult::new(ElicitationAction::Decline),
    }
}

/// The defaults of an object schema; `None` when something required has none, or there is none at all.
fn defaults(schema: &Value) -> Option<Map<String, Value>> {
    let properties = schema.get("properties")?.as_object()?;
    let found: Map<String, Value> = properties
        .iter()
        .filter_map(|(name, property)| Some((name.clone(), property.get("default")?.clone())))
        .collect();
    let required = schema.get("required").and_then(Value::as_array);
    let complete = required
        .into_iter()
        .flatten()
        .all(|name| name.as_str().is_some_and(|name| found.contains_key(name)));
    (complete && (!found.is_empty() || properties.is_empty())).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::defaults;
    use serde_json::json;

    #[test]
    fn a_form_is_filled_in_only_when_it_can_be() {
        let form = json!({ "properties": { "a": { "default": 1 }, "b": {} }, "required": ["a"] });
        assert_eq!(defaults(&form).map(serde_json::Value::Object), Some(json!({ "a": 1 })));
        assert_eq!(
            defaults(&json!({ "properties": { "a": { "default": 1 }, "b": {} }, "required": ["b"] })),
            None
        );
        assert_eq!(defaults(&json!({ "properties": { "a": {} } })), None);
    }
}

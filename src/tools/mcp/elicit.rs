//! Answers the elicitation requests of servers in an unattended run: with the form's own defaults, or by declining. A form
//! without fields asks for nothing but consent, which only a person or a rule can give: it is declined.

use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction};
use serde_json::{Map, Value};

/// The answer to one request. A form is accepted if each of its required properties has a default.
pub fn answer(asked: &ElicitRequestParams) -> ElicitResult {
    let ElicitRequestParams::FormElicitationParams { requested_schema, .. } = asked else {
        // The server asks to open a URL in a browser, but no user is there.
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

/// The defaults of an object schema; `None` if a required property has none, or no property has one.
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
    (complete && !found.is_empty()).then_some(found)
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
        assert_eq!(defaults(&json!({ "properties": {} })), None);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! JSON-RPC 1.0 messages, as RFC 7047 section 4 uses them.

use serde_json::{Map, Value, json};

use crate::error::{DecodeError, excerpt};

/// One JSON-RPC 1.0 message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Message {
    /// Wants an answer.
    Request { method: String, params: Value, id: Value },
    /// A request that wants no reply.
    Notification { method: String, params: Value },
    /// The answer to a request that went well.
    Reply { result: Value, id: Value },
    /// The answer to one that did not.
    Error { error: Value, id: Value },
}

impl Message {
    /// Reads a message from its text.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, DecodeError> {
        let value: Value =
            serde_json::from_slice(text).map_err(|e| DecodeError::new(e.to_string()))?;
        let Value::Object(mut members) = value else {
            return Err(DecodeError::expected("an object", &value));
        };
        let mut take = |name: &str| members.remove(name).filter(|v| !v.is_null());
        let id = take("id");
        if let Some(method) = take("method") {
            let Value::String(method) = method else {
                return Err(DecodeError::expected("a method name", &method));
            };
            let params = take("params").unwrap_or(Value::Null);
            return Ok(match id {
                Some(id) => Message::Request { method, params, id },
                None => Message::Notification { method, params },
            });
        }
        let error = take("error");
        let result = take("result");
        let Some(id) = id else {
            return Err(DecodeError::new("a message with neither a method nor an id")
                .within(names(&members)));
        };
        // ovsdb-server leaves out the member that would be null.
        match error {
            Some(error) => Ok(Message::Error { error, id }),
            None => Ok(Message::Reply { result: result.unwrap_or(Value::Null), id }),
        }
    }

    /// The text to send.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let value = match self {
            Message::Request { method, params, id } => {
                json!({"method": method, "params": params, "id": id})
            }
            Message::Notification { method, params } => {
                json!({"method": method, "params": params, "id": null})
            }
            Message::Reply { result, id } => json!({"result": result, "error": null, "id": id}),
            Message::Error { error, id } => json!({"result": null, "error": error, "id": id}),
        };
        out.extend_from_slice(value.to_string().as_bytes());
    }
}

fn names(members: &Map<String, Value>) -> String {
    let names: Vec<&str> = members.keys().take(8).map(String::as_str).collect();
    format!("members [{}]", names.join(", "))
}

/// Bytes of a server's error, which may quote what it was sent.
const MAX_ERROR: usize = 1024;

/// An `<error>` (RFC 7047 section 3.1) or any other error value as one line of text, abridged when
/// it is long.
pub(crate) fn error_text(error: &Value) -> String {
    let member = |name: &str| error.get(name).and_then(Value::as_str);
    let text = match (error, member("error"), member("details")) {
        (Value::String(text), ..) => text.clone(),
        (_, Some(error), Some(details)) => format!("{error}: {details}"),
        (_, Some(error), None) => error.to_owned(),
        _ => excerpt(error),
    };
    vlog::abridged(&text, MAX_ERROR).into_owned()
}

/// Returns the tag of an error: the string by which RFC 7047 distinguishes errors.
pub(crate) fn error_tag(error: &Value) -> &str {
    error.as_str().or_else(|| error.get("error").and_then(Value::as_str)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        for message in [
            Message::Request { method: "m".into(), params: json!([1]), id: json!("x") },
            Message::Notification { method: "m".into(), params: json!(["a"]) },
            Message::Reply { result: json!({"a": 1}), id: json!(4) },
            Message::Error { error: json!("no"), id: json!(4) },
        ] {
            let mut text = Vec::new();
            message.write(&mut text);
            assert_eq!(Message::parse(&text).unwrap(), message);
        }
    }

    #[test]
    fn a_missing_null_member_is_fine() {
        assert_eq!(
            Message::parse(br#"{"id":"x","error":"unknown method"}"#).unwrap(),
            Message::Error { error: json!("unknown method"), id: json!("x") }
        );
        assert_eq!(
            Message::parse(br#"{"id":1,"result":null,"error":null}"#).unwrap(),
            Message::Reply { result: Value::Null, id: json!(1) }
        );
    }

    #[test]
    fn other_objects_are_errors() {
        for text in ["{}", r#"{"result":1}"#, r#"{"method":1}"#, "{]", r#"{"id":null,"error":"x"}"#]
        {
            assert!(Message::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn error_texts() {
        let error = json!({"error": "not owner", "details": "lock x"});
        assert_eq!(
            (error_tag(&error), error_text(&error).as_str()),
            ("not owner", "not owner: lock x")
        );
        assert_eq!(error_text(&json!([1])), "[1]");
        let long = error_text(&json!({"error": "syntax error", "details": "x".repeat(60_000)}));
        assert!(long.len() < 1100 && long.starts_with("syntax error: xx"), "{long}");
    }
}

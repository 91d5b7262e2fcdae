// SPDX-License-Identifier: Apache-2.0
//! Requests and replies, in the shape that `ovs-appctl` and `ovs-vswitchd` exchange.

use crate::registry::{Body, Format, Outcome};
use serde_json::{Map, Value, json};

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) params: Vec<Value>,
    /// Anything but null, given back as it came.
    pub(crate) id: Value,
}

/// Reads a request.
///
/// # Errors
/// Says why the bytes are none: not JSON, a member missing, of the wrong type or unknown.
pub(crate) fn parse_request(bytes: &[u8]) -> Result<Request, String> {
    let mut object: Map<String, Value> =
        serde_json::from_slice(bytes).map_err(|e| format!("bad JSON: {e}"))?;
    let method = match object.remove("method") {
        Some(Value::String(method)) => method,
        Some(_) => return Err("\"method\" is not a string".into()),
        None => return Err("no \"method\": only requests are accepted".into()),
    };
    let params = match object.remove("params") {
        Some(Value::Array(params)) => params,
        _ => return Err("\"params\" is not an array".into()),
    };
    let id = match object.remove("id") {
        None | Some(Value::Null) => {
            return Err("\"id\" is missing: notifications are not accepted".into());
        }
        Some(id) => id,
    };
    for name in ["result", "error"] {
        if !matches!(object.remove(name), None | Some(Value::Null)) {
            return Err(format!("a request must not have \"{name}\""));
        }
    }
    match object.keys().next() {
        Some(name) => Err(format!("unexpected member \"{name}\"")),
        None => Ok(Request { method, params, id }),
    }
}

/// Writes a reply: a text in `result` or in `error`, ended by a line end unless empty; for a peer
/// that wants JSON, a value in `result`, which holds the text of a command that only has one.
pub(crate) fn reply(id: &Value, outcome: Outcome, format: Format) -> Vec<u8> {
    let end = |mut text: String| {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text
    };
    let value = match outcome {
        Ok(Body::Json(value)) => json!({"id": id, "result": value, "error": null}),
        Ok(Body::Text(text)) if format == Format::Json => {
            let wrapped = json!({"reply-format": "plain", "reply": text});
            json!({"id": id, "result": wrapped, "error": null})
        }
        Ok(Body::Text(text)) => json!({"id": id, "result": end(text), "error": null}),
        Err(text) => json!({"id": id, "result": null, "error": end(text)}),
    };
    value.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_real_daemon_refuses() {
        for bad in [
            r#"{"method":"version","params":[],"id":null}"#,
            r#"{"method":"version","params":[]}"#,
            r#"{"method":"version","params":{},"id":0}"#,
            r#"{"method":"version","params":"x","id":0}"#,
            r#"{"method":"version","id":0}"#,
            r#"{"method":7,"params":[],"id":0}"#,
            r#"{"result":"x","error":null,"id":0}"#,
            r#"{"x":7,"method":"version","params":[],"id":0}"#,
            r#"{"jsonrpc":"2.0","method":"version","params":[],"id":0}"#,
            "[]",
            "{",
            "",
        ] {
            assert!(parse_request(bad.as_bytes()).is_err(), "{bad}");
        }
        let good = parse_request(br#" {"method":"m","params":["a",3],"id":{"a":1.5}}"#).unwrap();
        assert_eq!(good.method, "m");
        assert_eq!(good.params.len(), 2);
        assert_eq!(good.id, json!({"a": 1.5}));
    }

    #[test]
    fn replies_end_in_a_line_end() {
        let in_format =
            |r: Outcome, format| String::from_utf8(reply(&json!(0), r, format)).unwrap();
        let text = |r: Result<String, String>| in_format(r.map(Body::Text), Format::Text);
        assert_eq!(
            in_format(Ok(Body::Text("v".into())), Format::Json),
            r#"{"id":0,"result":{"reply-format":"plain","reply":"v"},"error":null}"#
        );
        assert_eq!(
            in_format(Ok(Body::Json(json!([1]))), Format::Json),
            r#"{"id":0,"result":[1],"error":null}"#
        );
        assert_eq!(
            in_format(Err("e".into()), Format::Json),
            r#"{"id":0,"result":null,"error":"e\n"}"#
        );
        assert_eq!(text(Ok("v".into())), r#"{"id":0,"result":"v\n","error":null}"#);
        assert_eq!(text(Ok(String::new())), r#"{"id":0,"result":"","error":null}"#);
        assert_eq!(text(Err("e\n".into())), r#"{"id":0,"result":null,"error":"e\n"}"#);
    }

    #[test]
    fn every_truncation_is_an_error() {
        let whole = br#"{"method":"vlog/set","params":["bridge:dbg"],"id":7}"#;
        for end in 0..whole.len() {
            assert!(parse_request(&whole[..end]).is_err());
        }
        assert!(parse_request(whole).is_ok());
    }

    #[test]
    fn mutations_are_safe() {
        let whole = br#"{"method":"vlog/set","params":["bridge:\u00e4",{"a":[1.5]}],"id":7}"#;
        // A fixed xorshift sequence: the same mutations on every run.
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = |bound: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state >> 33).unwrap() % bound
        };
        let mut accepted = 0;
        for _ in 0..100_000 {
            let mut bytes = whole.to_vec();
            for _ in 0..=next(3) {
                let at = next(bytes.len());
                match next(3) {
                    0 => bytes[at] = u8::try_from(next(256)).unwrap(),
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, b"{}[]\",:\\0"[next(9)]),
                }
            }
            let mut framer = crate::framer::Framer::new(1000);
            framer.push(&bytes);
            while let Ok(Some(object)) = framer.next_object() {
                accepted += usize::from(parse_request(&object).is_ok());
            }
        }
        assert!(accepted > 1000, "most changes inside strings leave a good request: {accepted}");
    }
}

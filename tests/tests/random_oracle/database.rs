// SPDX-License-Identifier: Apache-2.0
//! Changes of a switch's database without a process for each.

use crate::player::Broken;
use crate::setting::Setting;
use serde_json::{Deserializer, Value, json};
use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A switch that takes longer to do what its database says does not do it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Writes `setting` into the database at `socket`, in one transaction, and waits until the switch
/// has applied it.
///
/// # Errors
/// The database refuses it, or the switch does not follow.
pub fn apply(socket: &Path, setting: &Setting) -> Result<(), Broken> {
    // One connection for each: the server drops those that answer no probes.
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(2 * PATIENCE))?;
    let mut operations = setting.operations();
    let rows = operations.len();
    operations.push(json!({
        "op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [["next_cfg", "+=", 1]]
    }));
    operations.push(json!({
        "op": "select", "table": "Open_vSwitch", "where": [], "columns": ["next_cfg"]
    }));
    let done = transact(&stream, operations)?;
    let changed = |result: &Value| result.get("count").and_then(Value::as_u64);
    if let Some(n) = done.iter().take(rows).position(|r| changed(r) != Some(1)) {
        return Err(Broken(format!("{:?} was not set: {done:?}", setting.operations().get(n))));
    }
    let next = done.last().and_then(|r| r.pointer("/rows/0/next_cfg")).and_then(Value::as_i64);
    let next = next.ok_or_else(|| Broken(format!("no next_cfg in {done:?}")))?;
    let wait = json!({
        "op": "wait", "table": "Open_vSwitch", "where": [], "columns": ["cur_cfg"], "until": "==",
        "rows": [{"cur_cfg": next}], "timeout": PATIENCE.as_millis() as u64
    });
    transact(&stream, vec![wait])?;
    Ok(())
}

/// The results of the operations, all of which succeeded.
fn transact(mut stream: &UnixStream, operations: Vec<Value>) -> Result<Vec<Value>, Broken> {
    let mut params = vec![json!("Open_vSwitch")];
    params.extend(operations);
    let request = json!({"method": "transact", "params": params, "id": 0});
    stream.write_all(request.to_string().as_bytes())?;
    let reply = Deserializer::from_reader(BufReader::new(stream)).into_iter::<Value>().next();
    let reply = reply.ok_or_else(|| Broken("the database has hung up".to_owned()))??;
    let failed = |result: &Value| result.is_null() || result.get("error").is_some();
    match reply.get("result").and_then(Value::as_array) {
        Some(results) if !results.iter().any(failed) => Ok(results.clone()),
        _ => Err(Broken(format!("the database refuses {params:?}: {reply}"))),
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Routes and rules of the underlay: `ovs/route/`.

use super::{Answer, Commands};
use crate::daemon::Daemon;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use underlay::{
    Cidr, Origin, Query, Route, RouteKind, Routes, Rule, RuleAction, TABLE_DEFAULT, TABLE_LOCAL,
    TABLE_MAIN, UserRoute, address_text,
};

/// The arguments of the commands that add and remove a rule.
const RULE: &str = "[-6] [not] from=all|ip/plen [prio=num] table=local|main|default|id";

pub(super) fn register(commands: &Commands<'_>) {
    commands.show("ovs/route/show", "[table=all|id]", 0, 1, |daemon, call| {
        show(&daemon.underlay.routes(), call.arg(0))
    });
    commands
        .json("ovs/route/show", |daemon, call| show_json(&daemon.underlay.routes(), call.arg(0)));
    commands.change(
        "ovs/route/add",
        "ip/plen dev [gw] [pkt_mark=mark] [src=src_ip] [table=id]",
        2,
        6,
        |daemon, call| add(daemon, call.args),
    );
    commands.change("ovs/route/del", "ip/plen [pkt_mark=mark] [table=id]", 1, 3, |daemon, call| {
        delete(daemon, call.args)
    });
    commands.show(
        "ovs/route/lookup",
        "ip_addr [pkt_mark=mark] [src=src_ip]",
        1,
        3,
        |daemon, call| lookup(daemon, call.args),
    );
    commands.show("ovs/route/rule/show", "[-6]", 0, 1, |daemon, call| {
        let is_ipv6 = call.arg(0) == Some("-6");
        let routes = daemon.underlay.routes();
        Ok(routes.rules().iter().filter(|r| r.is_ipv6 == is_ipv6).map(rule_line).collect())
    });
    commands.change("ovs/route/rule/add", RULE, 2, 5, |daemon, call| {
        let (rule, priority) = parse_rule(call.args)?;
        daemon.underlay.add_rule(rule, priority);
        Ok("OK".to_owned())
    });
    commands.change("ovs/route/rule/del", RULE, 2, 5, |daemon, call| {
        let (rule, priority) = parse_rule(call.args)?;
        if daemon.underlay.remove_rule(&rule, priority) {
            return Ok("OK".to_owned());
        }
        Err("Failed to delete router rule: -2 (Unknown error -2)".to_owned())
    });
}

/// Returns the address of the host's own routes without one: "::".
fn address_or_any(address: Option<IpAddr>) -> String {
    address.map_or_else(|| Ipv6Addr::UNSPECIFIED.to_string(), address_text)
}

/// Returns `ovs/route/show` as JSON.
fn show_json(routes: &Routes, wanted: Option<&str>) -> Result<Value, String> {
    let tables = selected_tables(routes, wanted)?.tables(routes);
    let routes = tables.into_iter().flat_map(|number| {
        routes.in_table(number).into_iter().map(move |route| {
            let is_user = route.origin == Origin::User;
            let mut object = json!({
                "table": number,
                "user": is_user,
                "local": number == TABLE_LOCAL && !is_user,
                "prefix": route.prefix.length(),
                "dst": address_text(route.prefix.address()),
                "prefsrc": address_or_any(route.source),
            });
            if route.mark != 0 {
                object["mark"] = route.mark.into();
            }
            let hops = route.next_hop.iter().map(|hop| {
                let mut hop_object = json!({"dev": &*hop.device});
                if let Some(gateway) = hop.gateway {
                    hop_object["gateway"] = address_text(gateway).into();
                }
                hop_object
            });
            object["nexthops"] = hops.collect();
            object
        })
    });
    Ok(routes.collect())
}

fn is_standard(table: u32) -> bool {
    matches!(table, TABLE_DEFAULT | TABLE_MAIN | TABLE_LOCAL)
}

/// The tables of routes that a command shows.
enum Selection {
    /// Those that every host has.
    Standard,
    All,
    One(u32),
}

impl Selection {
    fn tables(&self, routes: &Routes) -> Vec<u32> {
        match self {
            Selection::Standard => vec![TABLE_LOCAL, TABLE_MAIN, TABLE_DEFAULT],
            Selection::All => routes.tables().into_iter().collect(),
            Selection::One(number) => vec![*number],
        }
    }
}

fn selected_tables(routes: &Routes, wanted: Option<&str>) -> Result<Selection, String> {
    let number = match wanted {
        None => 0,
        Some("table=all") => return Ok(Selection::All),
        Some(wanted) => number_of(wanted, "table=").ok_or("Invalid table format")?,
    };
    if number == 0 {
        Ok(Selection::Standard)
    } else if routes.tables().contains(&number) {
        Ok(Selection::One(number))
    } else {
        Err(format!("Table '{}' not found", wanted.unwrap_or_default()))
    }
}

fn show(routes: &Routes, wanted: Option<&str>) -> Answer {
    let selection = selected_tables(routes, wanted)?;
    let names_tables = matches!(selection, Selection::All);
    let mut text = String::new();
    for number in selection.tables(routes) {
        for route in routes.in_table(number) {
            text.push_str(&route_line(route));
            if names_tables && !is_standard(number) {
                let _ = write!(text, " table {number}"); // a String takes all writes
            }
            text.push('\n');
        }
    }
    Ok(match selection {
        Selection::All => text,
        Selection::One(number) if !is_standard(number) => format!("Route Table #{number}:\n{text}"),
        Selection::One(_) | Selection::Standard => format!("Route Table:\n{text}"),
    })
}

fn route_line(route: &Route) -> String {
    let mut line = match route.origin {
        Origin::System => format!("Cached: {}", route.prefix),
        Origin::User => format!("User: {}", route.prefix),
    };
    if route.mark != 0 {
        let _ = write!(line, " MARK {}", route.mark);
    }
    if let Some(hop) = &route.next_hop {
        let _ = write!(line, " dev {}", hop.device);
        if let Some(gateway) = hop.gateway {
            let _ = write!(line, " GW {}", address_text(gateway));
        }
    }
    if let Some(source) = route.source {
        let _ = write!(line, " SRC {}", address_text(source));
    }
    if route.kind == RouteKind::Local {
        line.push_str(" local");
    }
    line
}

/// An argument `NAME=NUMBER` in any base of C.
fn number_of(text: &str, name: &str) -> Option<u32> {
    let number = text.strip_prefix(name)?;
    if let Some(digits) = number.strip_prefix("0x").or(number.strip_prefix("0X")) {
        return u32::from_str_radix(digits, 16).ok();
    }
    match number.strip_prefix('0').filter(|rest| !rest.is_empty()) {
        Some(digits) => u32::from_str_radix(digits, 8).ok(),
        None => number.parse().ok(),
    }
}

/// An address of a family, not IPv4-mapped.
fn address_of(text: &str, is_ipv6: bool) -> Option<IpAddr> {
    if is_ipv6 {
        text.parse::<Ipv6Addr>().ok().map(IpAddr::from)
    } else {
        text.parse::<Ipv4Addr>().ok().map(IpAddr::from)
    }
}

fn add(daemon: &Daemon, args: &[String]) -> Answer {
    let [prefix, device, options @ ..] = args else {
        return Err("Invalid 'ip/plen' parameter".to_owned());
    };
    let prefix: Cidr = prefix.parse().map_err(|_| "Invalid 'ip/plen' parameter")?;
    let is_ipv6 = prefix.is_ipv6();
    let mut route = UserRoute {
        table: TABLE_MAIN,
        prefix,
        device: device.clone(),
        gateway: None,
        source: None,
        mark: 0,
    };
    for option in options {
        let source = option.strip_prefix("src=").and_then(|s| address_of(s, is_ipv6));
        if let Some(mark) = number_of(option, "pkt_mark=") {
            route.mark = mark;
        } else if let Some(source) = source {
            route.source = Some(source).filter(|a| !a.is_unspecified());
        } else if let Some(gateway) = address_of(option, is_ipv6) {
            route.gateway = Some(gateway).filter(|a| !a.is_unspecified());
        } else if let Some(table) = number_of(option, "table=") {
            route.table = table;
        } else if option.starts_with("table=") {
            return Err("Invalid table format".to_owned());
        } else {
            return Err("Invalid pkt_mark, IP gateway or src_ip".to_owned());
        }
    }
    match daemon.underlay.add_route(&route) {
        Ok(()) => Ok("OK".to_owned()),
        Err(error) => {
            tracing::debug!(target: "ovs_router", "route {prefix} over {device}: {error}");
            Err("Error while inserting route.".to_owned())
        }
    }
}

fn delete(daemon: &Daemon, args: &[String]) -> Answer {
    let [prefix, options @ ..] = args else { return Err("Invalid parameters".to_owned()) };
    let prefix: Cidr = prefix.parse().map_err(|_| "Invalid parameters")?;
    let (mut mark, mut table) = (0, TABLE_MAIN);
    for option in options {
        if let Some(number) = number_of(option, "pkt_mark=") {
            mark = number;
        } else if let Some(number) = number_of(option, "table=") {
            if !daemon.underlay.routes().tables().contains(&number) {
                return Err(format!("Table {option} not found"));
            }
            table = number;
        } else if option.starts_with("table=") {
            return Err("Invalid table format".to_owned());
        } else {
            return Err("Invalid pkt_mark".to_owned());
        }
    }
    if daemon.underlay.remove_route(table, prefix, mark) {
        return Ok("OK".to_owned());
    }
    Err("Not found".to_owned())
}

fn lookup(daemon: &Daemon, args: &[String]) -> Answer {
    let [address, options @ ..] = args else { return Err("Invalid parameters".to_owned()) };
    let address: Option<Cidr> = address.parse().ok().filter(|a: &Cidr| a.is_host());
    let destination = address.ok_or("Invalid parameters")?.address();
    let mut query = Query::to(destination);
    for option in options {
        let is_ipv6 = destination.is_ipv6();
        let source = option.strip_prefix("src=").and_then(|s| address_of(s, is_ipv6));
        if let Some(mark) = number_of(option, "pkt_mark=") {
            query.mark = mark;
        } else if let Some(source) = source {
            query.source = Some(source).filter(|a| !a.is_unspecified());
        } else if option.starts_with("src=") {
            return Err("Invalid pkt_mark or src".to_owned());
        } else {
            return Err("Invalid pkt_mark".to_owned());
        }
    }
    let found = daemon.underlay.lookup(&query).ok_or("Not found")?;
    let gateway = found.gateway.unwrap_or(Ipv6Addr::UNSPECIFIED.into());
    Ok(format!(
        "src {}\ngateway {}\ndev {}\n",
        address_text(found.source),
        address_text(gateway),
        found.device
    ))
}

fn table_name(table: u32) -> String {
    match table {
        TABLE_DEFAULT => "default".to_owned(),
        TABLE_MAIN => "main".to_owned(),
        TABLE_LOCAL => "local".to_owned(),
        number => number.to_string(),
    }
}

/// A rule in Open vSwitch's form. The selectors that Open vSwitch does not have come last.
fn rule_line(rule: &Rule) -> String {
    let origin = if rule.origin == Origin::User { "User" } else { "Cached" };
    let not = if rule.is_inverted { "not " } else { "" };
    // As in Open vSwitch, two blanks follow a prefix.
    let from = match rule.from.filter(|f| f.length() != 0) {
        None => "all".to_owned(),
        Some(from) if from.is_host() => address_text(from.address()),
        Some(from) => format!("{from} "),
    };
    let action = match rule.action {
        RuleAction::Table(table) => format!("lookup {}", table_name(table)),
        RuleAction::Refuse => "prohibit".to_owned(),
    };
    let mut line = format!("{origin}: {}: {not}from {from} {action}", rule.priority);
    if let Some(to) = rule.to {
        let _ = write!(line, " to {to}");
    }
    if let Some((mark, mask)) = rule.mark {
        let _ = write!(line, " fwmark {mark:#x}/{mask:#x}");
    }
    if let Some(length) = rule.suppressed_length {
        let _ = write!(line, " suppress_prefixlength {length}");
    }
    line.push('\n');
    line
}

/// Parses [`RULE`]. Returns the rule and its priority, if one is given that is not zero.
fn parse_rule(args: &[String]) -> Result<(Rule, Option<u32>), &'static str> {
    const TOO_FEW: &str = "Not enough arguments";
    let mut words = args.iter().map(String::as_str).peekable();
    let mut is_ipv6 = words.next_if_eq(&"-6").is_some();
    let is_inverted = words.next_if_eq(&"not").is_some();
    let from = words.next().and_then(|word| word.strip_prefix("from="));
    let from = match from.ok_or("Invalid 'from' parameter")? {
        "all" => None,
        prefix => {
            let prefix: Cidr = prefix.parse().map_err(|_| "Invalid from=ip/plen")?;
            is_ipv6 = prefix.is_ipv6();
            Some(prefix)
        }
    };
    let priority = words.peek().ok_or(TOO_FEW).map(|word| number_of(word, "prio="))?;
    if priority.is_some() {
        words.next();
    }
    let table = match words.next().ok_or(TOO_FEW)? {
        "table=local" => TABLE_LOCAL,
        "table=main" => TABLE_MAIN,
        "table=default" => TABLE_DEFAULT,
        word => number_of(word, "table=").ok_or("Invalid 'table' format")?,
    };
    let rule = Rule::to_table(Origin::User, is_ipv6, 0, table);
    Ok((Rule { from, is_inverted, ..rule }, priority.filter(|p| *p != 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_any_base() {
        let mark = |text| number_of(text, "pkt_mark=");
        assert_eq!(mark("pkt_mark=10"), Some(10));
        assert_eq!(mark("pkt_mark=0xffffffff"), Some(u32::MAX));
        assert_eq!(mark("pkt_mark=010"), Some(8));
        assert_eq!(mark("pkt_mark=0"), Some(0));
        for bad in ["1", "pkt_mark=", "pkt_mark=0x", "pkt_mark=4294967296", "pkt_mark=x", "table=1"]
        {
            assert_eq!(mark(bad), None, "{bad}");
        }
    }

    fn parsed(text: &str) -> Result<String, &'static str> {
        let args: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let (rule, priority) = parse_rule(&args)?;
        let family = if rule.is_ipv6 { 6 } else { 4 };
        Ok(format!("{family} {priority:?} {}", rule_line(&rule).trim_end()))
    }

    #[test]
    fn rules() {
        let good = |text: &str, expected: &str| assert_eq!(parsed(text).as_deref(), Ok(expected));
        good("from=all table=main", "4 None User: 0: from all lookup main");
        good("-6 from=all table=local", "6 None User: 0: from all lookup local");
        good(
            "not from=10.0.0.0/8 prio=5 table=100",
            "4 Some(5) User: 0: not from 10.0.0.0/8  lookup 100",
        );
        good("from=10.0.0.1 table=default", "4 None User: 0: from 10.0.0.1 lookup default");
        good("from=2001:db8::/32 table=7", "6 None User: 0: from 2001:db8::/32  lookup 7");
        let bad = |text: &str, error: &str| {
            assert_eq!(parsed(text), Err(error.to_owned().leak() as &str))
        };
        bad("table=main", "Invalid 'from' parameter");
        bad("from=x table=main", "Invalid from=ip/plen");
        bad("from=all", "Not enough arguments");
        bad("from=all prio=1", "Not enough arguments");
        bad("from=all table=x", "Invalid 'table' format");
    }

    #[test]
    fn a_rule_of_the_kernel_shows_all_its_selectors() {
        let rule = Rule {
            to: Some("10.0.0.0/8".parse().unwrap()),
            mark: Some((1, 0xff)),
            suppressed_length: Some(0),
            ..Rule::to_table(Origin::System, false, 7, TABLE_MAIN)
        };
        let expected = "Cached: 7: from all lookup main to 10.0.0.0/8 fwmark 0x1/0xff \
                        suppress_prefixlength 0\n";
        assert_eq!(rule_line(&rule), expected);
    }
}

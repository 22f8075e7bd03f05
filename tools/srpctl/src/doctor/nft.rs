// SPDX-License-Identifier: GPL-2.0

//! What a ruleset of `nft -j list ruleset` does to the packets of an RDMA connection, without their
//! addresses.

use serde_json::Value;
use std::collections::BTreeMap;

/// The known properties of packets in one direction.
#[derive(Clone, Debug)]
pub struct Flow<'a> {
    /// `ip` or `ip6`.
    pub family: &'a str,
    /// `udp` or `tcp`.
    pub protocol: &'a str,
    pub interface: &'a str,
    /// Whether this machine receives the packets.
    pub incoming: bool,
    pub dport: Option<u64>,
    pub sport: Option<u64>,
    /// The state of connection tracking.
    pub state: &'a str,
}

/// What happens to packets. Both are possible if it depends on something unknown.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Fate {
    pub passes: bool,
    pub dropped: bool,
}

impl Fate {
    /// A program in user space decides, or a map whose key is not known.
    const UNKNOWN: Self = Self {
        passes: true,
        dropped: true,
    };
}

/// The chains that were walked: what each does to the packets, and whether they may reach its end.
type Walked<'a> = BTreeMap<&'a Place, (Fate, bool)>;

/// A base chain that drops or may drop packets.
#[derive(Debug, Eq, PartialEq)]
pub struct Drop {
    /// `FAMILY TABLE CHAIN`.
    pub chain: String,
    /// Whether all packets are dropped.
    pub surely: bool,
}

/// A chain with its rules.
struct Chain<'a> {
    head: &'a Value,
    rules: Vec<&'a Value>,
}

/// The place of a chain: family, table, name.
type Place = (String, String, String);

/// A ruleset.
pub struct Ruleset<'a>(BTreeMap<Place, Chain<'a>>);

fn field<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

impl<'a> Ruleset<'a> {
    /// Sorts the rules of nft's output into their chains.
    pub fn new(output: &'a Value) -> Self {
        let mut chains: BTreeMap<Place, Chain<'a>> = BTreeMap::new();
        let place = |of: &Value, chain: &str| {
            let (family, table) = (field(of, "family"), field(of, "table"));
            (
                family.to_string(),
                table.to_string(),
                field(of, chain).to_string(),
            )
        };
        let all = || output["nftables"].as_array().into_iter().flatten();
        for head in all()
            .map(|object| &object["chain"])
            .filter(|head| head.is_object())
        {
            chains.insert(
                place(head, "name"),
                Chain {
                    head,
                    rules: Vec::new(),
                },
            );
        }
        for rule in all()
            .map(|object| &object["rule"])
            .filter(|rule| rule.is_object())
        {
            if let Some(chain) = chains.get_mut(&place(rule, "chain")) {
                chain.rules.push(rule);
            }
        }
        Self(chains)
    }

    /// Returns the base chains that drop or may drop the packets.
    pub fn drops(&self, flow: &Flow<'_>) -> Vec<Drop> {
        let (mut found, mut walked) = (Vec::new(), Walked::new());
        for (place, chain) in &self.0 {
            let (family, table, name) = place;
            let hook = field(chain.head, "hook");
            let hooks: &[&str] = match flow.incoming {
                true => &["ingress", "prerouting", "input"],
                false => &["output", "postrouting", "egress"],
            };
            let here = match (family.as_str(), &chain.head["dev"]) {
                ("inet", _) => Some(true),
                // nft 1.0 does not print the device.
                ("netdev", Value::Null) => None,
                ("netdev", devices) => has(devices, &flow.interface.into()),
                (family, _) => Some(family == flow.family),
            };
            if here == Some(false) || !hooks.contains(&hook) {
                continue;
            }
            let (mut fate, ends) = self.walk(place, chain, flow, &mut walked);
            fate.passes |= here.is_none();
            if ends {
                // The packet reaches the end of the chain.
                match field(chain.head, "policy") {
                    "drop" => fate.dropped = true,
                    _ => fate.passes = true,
                }
            }
            if fate.dropped {
                let chain = format!("{family} {table} {name}");
                found.push(Drop {
                    chain,
                    surely: !fate.passes,
                });
            }
        }
        found
    }

    /// Returns what a chain does to packets, and whether they may reach its end. Many rules may
    /// jump to one chain, so each is walked once.
    fn walk<'s>(
        &'s self,
        place: &'s Place,
        chain: &Chain<'_>,
        flow: &Flow<'_>,
        walked: &mut Walked<'s>,
    ) -> (Fate, bool) {
        if let Some(known) = walked.get(place) {
            return *known;
        }
        // For a jump to itself, which the kernel does not allow.
        walked.insert(place, (Fate::UNKNOWN, true));
        let mut fate = Fate::default();
        let ends = self.rules(place, chain, flow, walked, &mut fate);
        walked.insert(place, (fate, ends));
        (fate, ends)
    }

    /// Adds what the rules of a chain do to packets. Returns whether they may reach its end.
    fn rules<'s>(
        &'s self,
        (family, table, _): &Place,
        chain: &Chain<'_>,
        flow: &Flow<'_>,
        walked: &mut Walked<'s>,
        fate: &mut Fate,
    ) -> bool {
        for rule in &chain.rules {
            // `Some(false)`: no packet matches, `None`: it is not known.
            let mut matches = Some(true);
            for statement in rule["expr"].as_array().into_iter().flatten() {
                let Some((kind, value)) = statement.as_object().and_then(|o| o.iter().next())
                else {
                    continue;
                };
                let verdict = match kind.as_str() {
                    "match" => {
                        match is_match(value, flow) {
                            Some(false) => matches = Some(false),
                            None => matches = matches.and_then(|m| (!m).then_some(false)),
                            Some(true) => {}
                        }
                        None
                    }
                    "counter" | "log" | "mangle" | "notrack" | "meter" | "comment" => None,
                    "vmap" => self.vmap(value, flow),
                    "accept" | "drop" | "reject" | "jump" | "goto" | "return" | "queue" => {
                        Some((kind.as_str(), value))
                    }
                    // `limit`, `xt` and others may match.
                    _ => {
                        matches = matches.and_then(|m| (!m).then_some(false));
                        None
                    }
                };
                if matches == Some(false) {
                    break;
                }
                let certain = matches == Some(true);
                match verdict {
                    None | Some(("continue", _)) => {}
                    Some(("accept", _)) => fate.passes = true,
                    Some(("drop" | "reject", _)) => fate.dropped = true,
                    Some(("return", _)) => {
                        if certain {
                            return true;
                        }
                    }
                    Some((verb @ ("jump" | "goto"), to)) => {
                        let place = (family.clone(), table.clone(), field(to, "target").into());
                        let ends = self.0.get_key_value(&place).is_none_or(|(place, chain)| {
                            let (there, ends) = self.walk(place, chain, flow, walked);
                            fate.passes |= there.passes;
                            fate.dropped |= there.dropped;
                            ends
                        });
                        match (verb, ends) {
                            ("goto", ends) if certain => return ends,
                            ("jump", false) if certain => return false,
                            _ => {}
                        }
                        continue;
                    }
                    Some(_) => {
                        *fate = Fate::UNKNOWN;
                        continue;
                    }
                }
                if certain && matches!(verdict, Some(("accept" | "drop" | "reject", _))) {
                    return false;
                }
            }
        }
        true
    }

    /// Returns the verdict of a map for the packets, or `None` if it has none for them.
    fn vmap<'v>(&self, map: &'v Value, flow: &Flow<'_>) -> Option<(&'v str, &'v Value)> {
        let unknown = Some(("vmap", map));
        let Some(key) = known(&map["key"], flow) else {
            return unknown;
        };
        // A map with a name is not in the rule.
        let Some(pairs) = map["data"]["set"].as_array() else {
            return unknown;
        };
        let found = pairs
            .iter()
            .find(|pair| has(&pair[0], &key) == Some(true))?;
        let (verb, to) = found[1].as_object()?.iter().next()?;
        Some((verb.as_str(), to))
    }
}

/// Returns the value of an expression for the packets, or `None` if it is not known.
fn known(left: &Value, flow: &Flow<'_>) -> Option<Value> {
    if let Some(key) = left["meta"]["key"].as_str() {
        return Some(match (key, flow.incoming) {
            ("l4proto", _) => flow.protocol.into(),
            ("protocol" | "nfproto", _) => match (key, flow.family) {
                ("nfproto", "ip") => "ipv4".into(),
                ("nfproto", _) => "ipv6".into(),
                (_, family) => family.into(),
            },
            ("iifname" | "iif", true) | ("oifname" | "oif", false) => flow.interface.into(),
            _ => return None,
        });
    }
    if left["ct"]["key"] == "state" {
        return Some(flow.state.into());
    }
    let payload = &left["payload"];
    match (field(payload, "protocol"), field(payload, "field")) {
        ("ip", "protocol") | ("ip6", "nexthdr") => Some(flow.protocol.into()),
        (_, "dport") => flow.dport.map(Value::from),
        (_, "sport") => flow.sport.map(Value::from),
        _ => None,
    }
}

/// Returns whether the packets match, or `None` if that is not known.
fn is_match(value: &Value, flow: &Flow<'_>) -> Option<bool> {
    let left = &value["left"];
    // A match on a header of another protocol fails.
    let protocol = field(&left["payload"], "protocol");
    let other = match protocol {
        "tcp" | "udp" | "udplite" | "sctp" | "dccp" | "icmp" | "icmpv6" => {
            protocol != flow.protocol
        }
        "ip" | "ip6" => protocol != flow.family,
        _ => false,
    };
    if other {
        return Some(false);
    }
    let found = known(left, flow).and_then(|key| has(&value["right"], &key))?;
    match field(value, "op") {
        "==" | "in" => Some(found),
        "!=" => Some(!found),
        _ => None,
    }
}

/// Returns whether a value, a list, a set or a range has the key.
fn has(right: &Value, key: &Value) -> Option<bool> {
    if let Some(list) = right.as_array().or(right["set"].as_array()) {
        let all: Vec<_> = list.iter().map(|one| has(one, key)).collect();
        return match all.contains(&Some(true)) {
            true => Some(true),
            false => all.iter().all(Option::is_some).then_some(false),
        };
    }
    if let Some([low, high]) = right["range"].as_array().map(Vec::as_slice) {
        let key = key.as_u64()?;
        return Some((low.as_u64()?..=high.as_u64()?).contains(&key));
    }
    match (right, key) {
        // A set with a name is listed elsewhere.
        (Value::String(name), _) if name.starts_with('@') => None,
        (Value::String(name), Value::String(key)) => Some(match name.strip_suffix('*') {
            Some(start) => key.starts_with(start),
            None => name == key,
        }),
        (Value::Number(_), Value::Number(_)) => Some(right == key),
        // Numbers of protocols and interfaces are written as names.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ROCE: Flow<'static> = Flow {
        family: "ip",
        protocol: "udp",
        interface: "eth1",
        incoming: true,
        dport: Some(4791),
        sport: None,
        state: "new",
    };

    /// Returns the fate of RoCE in an input chain with this policy and these rules.
    fn fate(policy: &str, rules: &[&str]) -> Vec<bool> {
        let rule = |chain: &str, rule: &str| {
            let rule: Value = serde_json::from_str(&format!("[{rule}]")).unwrap();
            json!({"rule": {"family": "inet", "table": "t", "chain": chain, "expr": rule}})
        };
        let chain = |name: &str| json!({"family": "inet", "table": "t", "name": name});
        let mut input = chain("in");
        input["hook"] = "input".into();
        input["policy"] = policy.into();
        let mut objects = vec![
            json!({"metainfo": {}}),
            json!({"chain": input}),
            json!({"chain": chain("sub")}),
            rule("sub", r#"{"drop":null}"#),
        ];
        objects.extend(rules.iter().map(|text| rule("in", text)));
        let output = json!({"nftables": objects});
        let drops = Ruleset::new(&output).drops(&ROCE);
        drops.iter().map(|drop| drop.surely).collect()
    }

    #[test]
    fn a_chain_is_walked_once() {
        let name = |level: u32| format!("c{level}");
        let chain = |level: u32| match level {
            0 => json!({"family": "inet", "table": "t", "name": "c0", "hook": "input"}),
            _ => json!({"family": "inet", "table": "t", "name": name(level)}),
        };
        let rule = |level: u32, verb: &str, to: Value| {
            let chain = name(level);
            let rule = json!([{verb: to}]);
            json!({"rule": {"family": "inet", "table": "t", "chain": chain, "expr": rule}})
        };
        let mut objects: Vec<Value> = (0..=16).map(|n| json!({"chain": chain(n)})).collect();
        for level in 0..16 {
            let jump = rule(level, "jump", json!({"target": name(level + 1)}));
            objects.extend(vec![jump; 20]);
        }
        let surely = |last: Value| {
            let all = [&objects[..], &[last]].concat();
            let output = json!({"nftables": all});
            let drops = Ruleset::new(&output).drops(&ROCE);
            drops.iter().map(|drop| drop.surely).collect::<Vec<_>>()
        };
        assert_eq!(surely(rule(16, "return", Value::Null)), [false; 0]);
        assert_eq!(surely(rule(16, "drop", Value::Null)), [true]);
        // A loop ends.
        assert_eq!(surely(rule(16, "jump", json!({"target": "c1"}))), [false]);
    }

    #[test]
    fn a_chain_of_a_device_counts_there() {
        let surely = |device: &str| {
            let device: Value = serde_json::from_str(device).unwrap();
            let chain = json!({"family": "netdev", "table": "t", "name": "c", "hook": "ingress",
                "policy": "drop", "dev": device});
            let output = json!({"nftables": [{"chain": chain}]});
            let drops = Ruleset::new(&output).drops(&ROCE);
            drops.first().map(|drop| drop.surely)
        };
        assert_eq!(surely(r#""eth1""#), Some(true));
        assert_eq!(surely(r#"["eth0","eth1"]"#), Some(true));
        assert_eq!(surely(r#""eth0""#), None);
        assert_eq!(surely("null"), Some(false));
    }

    fn dport(protocol: &str, right: &str) -> String {
        let right: Value = serde_json::from_str(right).unwrap();
        let left = json!({"payload": {"protocol": protocol, "field": "dport"}});
        json!({"match": {"op": "==", "left": left, "right": right}}).to_string()
    }

    const ACCEPT: &str = r#"{"counter":{"packets":0}},{"accept":null}"#;
    const ESTABLISHED: &str = r#"{"match":{"op":"in","left":{"ct":{"key":"state"}},
        "right":["established","related"]}}"#;

    #[test]
    fn a_policy_drops_what_no_rule_accepts() {
        assert_eq!(fate("accept", &[]), [false; 0]);
        assert_eq!(fate("drop", &[]), [true]);
        assert_eq!(fate("drop", &[&format!("{ESTABLISHED},{ACCEPT}")]), [true]);
        for right in ["4791", r#"{"set":[22,4791]}"#, r#"{"range":[4000,5000]}"#] {
            let rule = format!("{},{ACCEPT}", dport("udp", right));
            assert_eq!(fate("drop", &[&rule]), [false; 0], "{right}");
        }
        for (protocol, right) in [("udp", "4792"), ("tcp", "4791"), ("udp", r#"{"set":[22]}"#)] {
            let rule = format!("{},{ACCEPT}", dport(protocol, right));
            assert_eq!(fate("drop", &[&rule]), [true], "{protocol} {right}");
        }
    }

    #[test]
    fn a_rule_may_drop_it() {
        let drop = format!("{},{}", dport("udp", "4791"), r#"{"drop":null}"#);
        assert_eq!(fate("accept", &[&drop]), [true]);
        assert_eq!(fate("accept", &[ACCEPT, &drop]), [false; 0]);
        let jump = r#"{"jump":{"target":"sub"}}"#;
        assert_eq!(fate("accept", &[jump]), [true]);
        let other = format!("{},{jump}", dport("udp", "22"));
        assert_eq!(fate("accept", &[&other]), [false; 0]);
    }

    #[test]
    fn an_address_makes_it_uncertain() {
        let from = r#"{"match":{"op":"==","left":{"payload":{"protocol":"ip","field":"saddr"}},
            "right":"192.0.2.9"}}"#;
        assert_eq!(fate("drop", &[&format!("{from},{ACCEPT}")]), [false]);
        assert_eq!(
            fate("accept", &[&format!("{from},{}", r#"{"drop":null}"#)]),
            [false]
        );
        let jump = format!("{from},{}", r#"{"jump":{"target":"sub"}}"#);
        assert_eq!(fate("accept", &[&jump]), [false]);
        let other = from.replace("\"ip\"", "\"ip6\"");
        assert_eq!(fate("drop", &[&format!("{other},{ACCEPT}")]), [true]);
        // A set elsewhere, and a match of iptables.
        assert_eq!(
            fate(
                "drop",
                &[&format!("{},{ACCEPT}", dport("udp", "\"@ports\""))]
            ),
            [false]
        );
        assert_eq!(
            fate("drop", &[&format!(r#"{{"xt":null}},{ACCEPT}"#)]),
            [false]
        );
    }

    #[test]
    fn interfaces_and_maps_are_followed() {
        let on = |name: &str| {
            let left = json!({"meta": {"key": "iifname"}});
            let rule = json!({"match": {"op": "==", "left": left, "right": name}});
            format!("{rule},{ACCEPT}")
        };
        assert_eq!(fate("drop", &[&on("lo")]), [true]);
        assert_eq!(fate("drop", &[&on("eth*")]), [false; 0]);
        let map = r#"{"vmap":{"key":{"ct":{"key":"state"}},"data":{"set":[
            ["invalid",{"drop":null}],["established",{"accept":null}]]}}}"#;
        assert_eq!(fate("drop", &[map]), [true]);
        let new = map.replace("established", "new");
        assert_eq!(fate("drop", &[&new]), [false; 0]);
        assert_eq!(fate("drop", &[&new.replace("accept", "continue")]), [true]);
        assert_eq!(
            fate("accept", &[&map.replace("\"ct\"", "\"fib\"")]),
            [false]
        );
    }
}

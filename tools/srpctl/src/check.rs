// SPDX-License-Identifier: GPL-2.0

//! `srpctl check`: checks files of targets without a login.

use crate::{
    adapter, boot,
    cli::{Check, ANSWERS_FROM},
    error::{Error, Result},
    out::say,
    sysfs::{self, Sysfs},
    target::{self, Target},
    timeouts::Timeouts,
};
use std::{net::IpAddr, num::NonZero, path::Path, thread};

/// Receive buffers that an answer channel has at most (the driver's MAX_ANSWER_RECEIVES), and those
/// that are not for responses to commands.
const ANSWER_RECEIVES: u32 = 16_384;
const ANSWER_SPARE: u32 = 9;

/// Length of a device's name with its end (the kernel's IB_DEVICE_NAME_MAX).
const DEVICE_MAX: usize = 64;

/// Checks the files, and prints a line for each that is valid. Returns the last error, and prints
/// the others.
pub fn run(sysfs: &Sysfs, args: &Check) -> Result {
    let mut checked = Vec::new();
    for argument in &args.files {
        checked.push((argument.clone(), one(sysfs, argument)));
    }
    if args.files.is_empty() {
        checked = boot::all(sysfs)?;
        if checked.is_empty() {
            say!("{}", boot::NONE);
        }
        conflicts(sysfs, &mut checked);
    }
    let mut result = Ok(());
    for (name, target) in checked {
        match target.and_then(|target| with_parameters(sysfs, &name, &target)) {
            Ok(()) => say!("{name}: valid"),
            Err(error) => result = error.after(result),
        }
    }
    result
}

/// Reads the file that `argument` names: a path, which has a slash, or a target.
fn one(sysfs: &Sysfs, argument: &str) -> Result<Target> {
    if !argument.contains('/') {
        return Target::named(sysfs, argument);
    }
    let path = Path::new(argument);
    if !path.exists() {
        return Err(Error::NotFound(format!("there is no {argument}")));
    }
    Target::parse(argument, &target::read(path)?)
}

/// Refuses each file that describes the session of an earlier file: the same port, or the same way
/// to choose it, and the same key.
fn conflicts(sysfs: &Sysfs, files: &mut [(String, Result<Target>)]) {
    for i in 0..files.len() {
        let (earlier, later) = files.split_at_mut(i);
        let Some((name, Ok(target))) = later.first() else {
            continue;
        };
        let Some(session) = session(sysfs, target) else {
            continue;
        };
        let is_same = |file: &&(String, Result<Target>)| {
            let (_, target) = file;
            target
                .as_ref()
                .is_ok_and(|other| self::session(sysfs, other).as_ref() == Some(&session))
        };
        let Some((other, _)) = earlier.iter().find(is_same) else {
            continue;
        };
        let why = format!(
            "{name} has the port, id_ext, ioc_guid and initiator_ext of {other}, so they would be \
             one session; give it another initiator_ext"
        );
        later[0].1 = Err(Error::Usage(why));
    }
}

/// Checks what the driver does not refuse before a login.
pub fn values(target: &Target) -> Result {
    let bad = |why: String| Err(Error::Usage(why));
    if let Some(device) = &target.device {
        let is_bad = |c: char| c.is_control() || "/ ".contains(c);
        if !(1..DEVICE_MAX).contains(&device.len()) || device.contains(is_bad) {
            return bad(format!(
                "device: '{device:.64}' is neither a name nor a node GUID; `rdma link` lists the \
                 devices"
            ));
        }
    }
    if let Some((src, dest)) = target.ends()? {
        let ends = [("dest", Some(&dest)), ("src", src.as_ref())];
        let given = ends.map(|(key, end)| end.map(|end| (key, end)));
        for (key, end) in given.iter().flatten() {
            if end.scope.as_ref().is_some_and(|scope| scope.contains('/')) {
                return bad(format!("{key}: a network interface has no '/' in its name"));
            }
        }
        // A link-local address needs an interface.
        let has_interface = given.iter().flatten().any(|(_, end)| end.scope.is_some())
            || src.is_some()
            || target.device.is_some();
        match dest.ip {
            IpAddr::V4(ip) if ip.is_broadcast() => {
                return bad(format!("dest: {ip} is the address of all hosts"))
            }
            IpAddr::V6(ip) if ip.is_unicast_link_local() && !has_interface => {
                return bad(format!(
                    "dest: {ip} is a link-local address: add the interface, as in [{ip}%eth0]"
                ))
            }
            _ => {}
        }
    }
    let count = target.option("ch_count").map(str::parse);
    one_channel(target, count.and_then(|count| count.ok()))
}

/// Refuses several channels from one local port, as the driver does. Without `ch_count` it requests
/// several, except on a machine with one CPU.
fn one_channel(target: &Target, count: Option<u32>) -> Result {
    match local_port(target)? {
        Some(port) if count != Some(1) => Err(Error::Usage(format!(
            "src: the port {port} serves one channel; leave it out, or set ch_count = 1"
        ))),
        _ => Ok(()),
    }
}

/// Returns the local port that a target wants.
fn local_port(target: &Target) -> Result<Option<u16>> {
    let src = target.ends()?.and_then(|(src, _)| src);
    Ok(src.and_then(|src| src.port).filter(|port| *port != 0))
}

/// Refuses more commands than the receive queue of an answer channel has room for. Only
/// `srpctl check` asks: the driver first lowers both numbers to what the machine has.
fn answers(target: &Target, channels: u32) -> Result {
    let depth = target.option("queue_size").map_or(Ok(62), str::parse);
    let Ok(depth) = depth else {
        return Ok(());
    };
    let receives = channels.saturating_mul(depth).saturating_add(ANSWER_SPARE);
    if target.option(ANSWERS_FROM).is_none() || receives <= ANSWER_RECEIVES {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{ANSWERS_FROM}: queue_size {depth} on {channels} channels is more than an answer channel \
         takes, {}; lower one of them",
        ANSWER_RECEIVES - ANSWER_SPARE
    )))
}

/// Checks a target against the parameters of the loaded module, which later logins have. `name` is
/// for errors.
fn with_parameters(sysfs: &Sysfs, name: &str, target: &Target) -> Result {
    const FOLDER: &str = "/sys/module/ib_srp/parameters";
    let number = |parameter| sysfs::number(sysfs.path(format!("{FOLDER}/{parameter}")));
    let bad = |error: Error| {
        Error::Usage(format!(
            "{name}: with the parameters in {FOLDER}: {error}; /etc/modprobe.d has them for the \
             next load"
        ))
    };
    let module = Timeouts::of_module(sysfs);
    module.with(&target.timeouts).map_err(bad)?;
    // The driver's limit.
    let polled = number("poll_queues").unwrap_or(0).min(8);
    if let Some(port) = local_port(target)?.filter(|_| polled > 0) {
        return Err(bad(Error::Usage(format!(
            "src: the port {port} serves one channel, and poll_queues is {polled}; leave it out, \
             or set poll_queues to 0"
        ))));
    }
    let count = target.option("ch_count").and_then(|text| text.parse().ok());
    let count: u32 = count.or_else(|| number("ch_count")).unwrap_or(1);
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    let count = count.clamp(1, u32::try_from(cpus).unwrap_or(u32::MAX));
    answers(target, count.saturating_add(polled)).map_err(bad)
}

/// Identifies a session: the port, or all that chooses it, and the key.
type Known = (String, (String, String, String));

/// Returns what identifies the session of a file, if the file alone determines that.
fn session(sysfs: &Sysfs, target: &Target) -> Option<Known> {
    let device = target.device.as_deref();
    let device = device.map(|device| adapter::lasting(sysfs, device));
    let port = match (&device, target.port) {
        (Some(device), Some(port)) => format!("{device}/{port}"),
        (_, port) => {
            let ends = (target.option("src"), target.option("dest"));
            format!("{device:?} {port:?} {ends:?} {:?}", target.dgid().ok()?)
        }
    };
    Some((port, target.key().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const GOOD: &str = "id_ext = \"1\"\nioc_guid = \"2\"\ndest = \"192.0.2.1:5555\"\n";

    fn check(sysfs: &Sysfs, files: &[&str]) -> Result {
        let files = files.iter().map(|file| file.to_string()).collect();
        run(sysfs, &Check { files })
    }

    #[test]
    fn a_file_is_a_name_or_a_path() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let folder = root.path().join("etc/srp/targets.d");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("good.conf"), GOOD).unwrap();
        check(&sysfs, &[]).unwrap();
        check(&sysfs, &["good"]).unwrap();
        assert_eq!(check(&sysfs, &["none"]).unwrap_err().status(), 6);
        let path = root.path().join("new");
        let path = path.to_str().unwrap();
        assert_eq!(check(&sysfs, &[path]).unwrap_err().status(), 6);
        fs::write(path, format!("{GOOD}tos = 999\n")).unwrap();
        let error = check(&sysfs, &[path, "good"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{path}:4: 'tos=999': must be 0 to 255")
        );
        assert_eq!(error.status(), 2);
        fs::write(folder.join("bad.conf"), "tos = 1\n").unwrap();
        assert_eq!(check(&sysfs, &[]).unwrap_err().status(), 2);
    }

    #[test]
    fn two_files_are_two_sessions() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let folder = root.path().join("etc/srp/targets.d");
        fs::create_dir_all(&folder).unwrap();
        let put = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        let file = format!("{GOOD}device = \"rxe0\"\nport = 1\n");
        put("a.conf", &file);
        put("b.conf", &file.replace("192.0.2.1", "192.0.2.2"));
        let error = check(&sysfs, &[]).unwrap_err().to_string();
        assert!(
            error.starts_with("b has the port, ") && error.contains(" of a, "),
            "{error}"
        );
        put("b.conf", &format!("{file}initiator_ext = \"1\"\n"));
        check(&sysfs, &[]).unwrap();
        // The route may choose two ports.
        put("b.conf", GOOD);
        check(&sysfs, &[]).unwrap();
        put("c.conf", &GOOD.replace("192.0.2.1", "192.0.2.2"));
        check(&sysfs, &[]).unwrap();
        put("c.conf", &format!("{GOOD}src = \"192.0.2.9\"\n"));
        check(&sysfs, &[]).unwrap();
        // One route, one port.
        put("c.conf", &format!("{GOOD}queue_size = 9\n"));
        let error = check(&sysfs, &[]).unwrap_err().to_string();
        assert!(error.starts_with("c has the port, "), "{error}");
    }

    #[test]
    fn values_that_no_login_can_have_are_refused() {
        for (dest, more, said) in [
            (
                "192.0.2.1:5555",
                "device = \"\"",
                "4: device: '' is neither",
            ),
            ("192.0.2.1:5555", "device = \"a/b\"", "4: device: 'a/b' is"),
            ("192.0.2.1:5555", "device = \"a\\u0007\"", "4: device: 'a"),
            (
                "192.0.2.1:5555",
                &format!("device = \"{}\"", "d".repeat(64)),
                "4: device: 'ddd",
            ),
            ("[fe80::1]:5555", "", "3: dest: fe80::1 is a link-local"),
            (
                "[fe80::1%../x]:5555",
                "",
                "3: dest: a network interface has no '/'",
            ),
            ("255.255.255.255:5555", "", "3: dest: 255.255.255.255 is"),
        ] {
            let text = format!("id_ext = \"1\"\nioc_guid = \"2\"\ndest = \"{dest}\"\n{more}\n");
            let error = Target::parse("x", &text).unwrap_err();
            let start = format!("x:{said}");
            assert!(error.to_string().starts_with(&start), "{error}");
            assert_eq!(error.status(), 2);
        }
        for (dest, more) in [
            ("[fe80::1%eth0]:5555", ""),
            ("[fe80::1]:5555", "src = \"[fe80::2%eth0]\""),
            ("[fe80::1]:5555", "src = \"[2001:db8::2]\""),
            ("[fe80::1]:5555", "device = \"rxe0\""),
            // The driver lowers both to what the machine has.
            (
                "192.0.2.1:5555",
                "ch_count = 1024\nqueue_size = 4096\nanswers_from = \"192.0.2.2:5555\"",
            ),
        ] {
            let text = format!("id_ext = \"1\"\nioc_guid = \"2\"\ndest = \"{dest}\"\n{more}\n");
            Target::parse("x", &text).unwrap();
        }
    }

    #[test]
    fn the_parameters_of_the_module_count() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let folder = root.path().join("etc/srp/targets.d");
        let parameters = root.path().join("sys/module/ib_srp/parameters");
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(&parameters).unwrap();
        let put = |parameter: &str, value: &str| fs::write(parameters.join(parameter), value);
        let file = |lines: &str| fs::write(folder.join("one.conf"), format!("{GOOD}{lines}\n"));
        let said = || check(&sysfs, &["one"]).map_err(|error| error.to_string());
        file("src = \"192.0.2.9:700\"\nch_count = 1").unwrap();
        said().unwrap();
        put("poll_queues", "2\n").unwrap();
        let error = said().unwrap_err();
        let part = "one channel, and poll_queues is 2; leave it out, or set poll_queues to 0";
        assert!(
            error.starts_with("one: with the parameters in ") && error.contains(part),
            "{error}"
        );
        file("fast_io_fail_tmo = 60").unwrap();
        said().unwrap();
        put("dev_loss_tmo", "30\n").unwrap();
        let error = said().unwrap_err();
        assert!(
            error.contains("fast_io_fail_tmo (60) must be less than dev_loss_tmo (30)"),
            "{error}"
        );
        let answers = "queue_size = 4096\nanswers_from = \"192.0.2.2:5555\"";
        file(answers).unwrap();
        said().unwrap();
        put("poll_queues", "8\n").unwrap();
        let error = said().unwrap_err();
        assert!(error.contains("queue_size 4096 on 9 channels"), "{error}");
    }

    #[test]
    fn a_local_port_has_one_channel() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let folder = root.path().join("etc/srp/targets.d");
        fs::create_dir_all(&folder).unwrap();
        let with = |lines: &str| {
            fs::write(folder.join("one.conf"), format!("{GOOD}{lines}\n")).unwrap();
            check(&sysfs, &["one"])
        };
        with("src = \"192.0.2.9\"\nch_count = 4").unwrap();
        with("src = \"192.0.2.9:700\"\nch_count = 1").unwrap();
        for count in ["", "ch_count = 4"] {
            let error = with(&format!("src = \"192.0.2.9:700\"\n{count}")).unwrap_err();
            assert_eq!(error.status(), 2);
            let said = ".conf:4: src: the port 700 serves one channel; leave it out, or set \
                ch_count = 1";
            assert!(error.to_string().ends_with(said), "{error}");
        }
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The command line. The manual pages and the completions are generated from it.

use crate::{error::STATUS, owner::OURS, version};
use clap::{
    error::Error as ClapError, Arg, ArgAction, ArgMatches, Args, Command as ClapCommand,
    FromArgMatches, Parser, Subcommand, ValueEnum,
};
use std::path::PathBuf;

/// Log in to SRP targets, log out, show sessions, find faults.
#[derive(Debug, Parser)]
#[command(name = "srpctl", version = version::OURS, after_help = STATUS, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Log in to a target, and show its disks
    ///
    /// The target is described by options, or by the file NAME.conf in /etc/srp/targets.d, which
    /// targets.d(5) describes. The RDMA port is that of --device and --port, or the one that has
    /// the address --src, or the one that the route to the target goes through. Without --src the
    /// address is the port's. A session that already exists is rescanned; it is an error if it
    /// leads to another address, or belongs to another file. With a file, systemd logs in again
    /// when the session is gone, unless the file has `onboot = false`.
    Connect(Connect),
    /// Log out
    ///
    /// Fails if a disk is in use, and says by what: a file system in any mount namespace, swap, a
    /// volume, an array, a loop device, a back end of a target, a process. A path of a multipath
    /// device that keeps another path that works may be removed. There is no login again until
    /// `srpctl connect`, `srpctl apply` or the next boot.
    Disconnect(Disconnect),
    /// Make the sessions what the files in /etc/srp/targets.d say
    ///
    /// Logs in to targets without a session, and logs out of a target that srpctl has logged in to
    /// and whose file is removed. A session with other login options than the file is logged out
    /// and in again, unless a disk is in use; timeouts are set in place, and a unit that is stopped
    /// is started. Targets with `onboot = false`, sessions that were never of a file and those of
    /// other programs stay as they are.
    Apply(Apply),
    /// Edit the file of a target with $VISUAL or $EDITOR
    ///
    /// The editor works on a copy. A valid copy replaces the file; otherwise the file stays as it
    /// is. The session stays as it is until `srpctl apply`.
    Edit(Edit),
    /// Check files of targets
    ///
    /// An error names the file and the line. The check of all files also finds two with one device
    /// and port that would be one session. There is no login, and no host name is looked up.
    Check(Check),
    /// Look for disks that have come, gone, or changed their size
    ///
    /// If a target reports a change by a unit attention, udev runs this command, at most every 30
    /// seconds for a session. A disk that is gone at the target stays until --remove.
    Rescan(Rescan),
    /// List all sessions and their disks
    List(List),
    /// Show everything about a session
    ///
    /// Also its last 32 losses, from the kernel log.
    Show(Show),
    /// Show the activity of each session, updated until `q` is pressed
    Watch(Watch),
    /// Print counters of all sessions
    Stats(Stats),
    /// Print what happens to the sessions, until interrupted
    ///
    /// Each line has the time, the session and one event: a login or logout, a lost connection with
    /// its reason, its end, a change of channels or of the session's state, a disk that comes, goes
    /// or changes its size, a path of a multipath device that fails or is used again. The first
    /// line says how many sessions there are. Sessions are looked at each second, and with each
    /// event of the kernel.
    Events(Events),
    /// Look for targets
    ///
    /// Without an address, each InfiniBand subnet is queried with ibsrpdm(1). With the address of a
    /// target on RoCE, its device management agent is queried, as LIO and SCST have one. iWARP has
    /// no such agents.
    Discover(crate::discover::Discover),
    /// Check this machine: what is wrong, and what to type
    ///
    /// Checks the module, the kernel, RDMA ports, the firewall, each target of /etc/srp/targets.d,
    /// multipath, timeouts, the initramfs and units. Changes nothing. Sends no connect request
    /// without --ask, and never a login, which could end a session of this machine. Exits with
    /// status 1 if it finds an error.
    Doctor(Doctor),
    /// Explain lines of the kernel log or the journal
    ///
    /// Prints what a line means and what to do; of lines with the same explanation only the first.
    /// Exits with status 6 if there is no explanation for a line.
    Explain(Explain),
    /// On a target: print the command that logs in, for each of its ports
    ///
    /// The target is the kernel's (LIO) or SCST, on this machine. What a port lacks is printed with
    /// the command that adds it.
    TargetInfo(crate::target_info::TargetInfo),
    /// Print how the firmware (iPXE) has logged in to boot; status 6 if it has not
    Firmware(List),
    /// Write manual pages and completions into a folder
    #[command(hide = true)]
    Generate(Generate),
    /// Have systemd log in at boot; for srp-generator
    #[command(hide = true)]
    Generator(Generator),
    /// Print the files of the targets that the initramfs logs in to; for its hooks
    #[command(hide = true)]
    Targets(Targets),
    /// Log in again to the targets whose session is gone; for srp-restore.timer
    #[command(hide = true)]
    Restore,
}

/// `srpctl connect`.
#[derive(Debug, Default, Args)]
#[command(
    override_usage = "srpctl connect [OPTIONS] NAME\n       srpctl connect [OPTIONS] --dest \
    ADDRESS:PORT --id-ext HEX --ioc-guid HEX\n       srpctl connect --all | --firmware[=TABLE]"
)]
pub struct Connect {
    /// A target of /etc/srp/targets.d
    #[arg(conflicts_with_all = ["dest", "id_ext"])]
    #[arg(required_unless_present_any = ["dest", "dgid", "id_ext", "ioc_guid", "all", "firmware"])]
    pub name: Option<String>,
    /// All targets of /etc/srp/targets.d, except those with `onboot = false`
    #[arg(long, conflicts_with_all = ["name", "id_ext", "device", "port", "save", "path"])]
    pub all: bool,
    /// Log in to the targets that the firmware (iPXE) boots from: by all its tables, or this one
    #[arg(long, value_name = "TABLE", num_args = 0..=1, require_equals = true,
        default_missing_value = "", conflicts_with_all = ["name", "all", "device", "port", "path",
        "dest", "id_ext", "ioc_guid", "dgid"])]
    pub firmware: Option<String>,
    /// RDMA device, as mlx5_0, or its node GUID
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Port of the RDMA device
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=255))]
    pub port: Option<u32>,
    /// Keep the target in /etc/srp/targets.d as NAME, and log in at boot
    #[arg(long, value_name = "NAME", conflicts_with = "name")]
    pub save: Option<String>,
    /// Retry for this time while the port is missing or has no address, or the target does not
    /// respond
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub retry: Option<u64>,
    /// Make one more session with the target: choose an --initiator-ext that is not in use
    #[arg(long, conflicts_with_all = ["name", "initiator_ext"])]
    pub path: bool,
    /// Name that is recorded as the creator of the session
    #[arg(long, hide = true, default_value = OURS)]
    pub owner: String,
    /// For srp-connect@.service, which is already starting
    #[arg(long, hide = true)]
    pub unit: bool,
    /// Options of the login, and timeouts of the session.
    #[command(flatten)]
    pub settings: Settings,
}

impl Connect {
    /// Returns the arguments of `srpctl connect NAME`.
    pub fn of(name: &str) -> Self {
        Self {
            name: Some(name.into()),
            owner: OURS.into(),
            ..Self::default()
        }
    }
}

/// `srpctl apply`.
#[derive(Debug, Args)]
pub struct Apply {
    /// Change nothing; exit with status 9 if something differs
    #[arg(long)]
    pub check: bool,
    /// Print JSON, for programs: `changed`, and for each target what was done and why
    #[arg(long)]
    pub json: bool,
}

/// `srpctl edit`.
#[derive(Debug, Args)]
pub struct Edit {
    /// A target of /etc/srp/targets.d
    pub name: String,
}

/// `srpctl check`.
#[derive(Debug, Args)]
pub struct Check {
    /// A target of /etc/srp/targets.d, or the path of a file; all targets if none is given
    #[arg(value_name = "NAME|FILE")]
    pub files: Vec<String>,
}

/// `srpctl disconnect`.
#[derive(Debug, Args)]
pub struct Disconnect {
    /// A SCSI host (host7, or 7), or a target of /etc/srp/targets.d
    #[arg(value_name = "HOST|TARGET", required_unless_present = "all")]
    pub sessions: Vec<String>,
    /// All sessions that srpctl has made; those of srp_daemon and of others stay
    #[arg(long, conflicts_with = "sessions")]
    pub all: bool,
    /// Also remove the file from /etc/srp/targets.d, so that there is no login at boot
    #[arg(long, conflicts_with = "all")]
    pub forget: bool,
    /// Log out even if a disk is in use
    #[arg(long)]
    pub force: bool,
    /// For srp-connect@.service, which is already stopping
    #[arg(long, hide = true)]
    pub unit: bool,
}

/// `srpctl rescan`.
#[derive(Debug, Args)]
pub struct Rescan {
    /// A SCSI host (host7, or 7), or a target of /etc/srp/targets.d; all sessions if none is given
    #[arg(value_name = "HOST|TARGET")]
    pub sessions: Vec<String>,
    /// Remove the disks that are gone at the target and not in use
    #[arg(long)]
    pub remove: bool,
    /// For udev: have a rescan done in the background
    #[arg(long, hide = true)]
    pub event: bool,
    /// For srp-rescan@.service: rescan when the interval has passed
    #[arg(long, hide = true)]
    pub queued: bool,
}

/// `srpctl list`, `srpctl firmware`.
#[derive(Debug, Args)]
pub struct List {
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// `srpctl show`.
#[derive(Debug, Args)]
pub struct Show {
    /// A SCSI host (host7, or 7), or a target of /etc/srp/targets.d
    #[arg(value_name = "HOST|TARGET")]
    pub session: String,
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// `srpctl watch`.
#[derive(Debug, Args)]
pub struct Watch {
    /// Time between two updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub interval: u32,
    /// Print this many updates as plain text, then exit
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,
}

/// `srpctl stats`.
#[derive(Debug, Args)]
pub struct Stats {
    /// Output format; `prometheus` is for the textfile collector of the node exporter
    #[arg(long, value_enum, default_value_t = Format::Json)]
    pub format: Format,
}

/// `srpctl events`.
#[derive(Debug, Args)]
pub struct Events {
    /// Print JSON, one object per line, for programs
    #[arg(long)]
    pub json: bool,
}

/// How counters are written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Format {
    /// As JSON.
    Json,
    /// As Prometheus reads them.
    Prometheus,
}

/// `srpctl doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Ask each target without a session, by a connect request of rping(1) that is no login: the
    /// target rejects it, and writes that to its log
    #[arg(long)]
    pub ask: bool,
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// `srpctl explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// A line, with or without the prefix of the journal; without it, standard input
    pub line: Vec<String>,
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// `srpctl generate`.
#[derive(Debug, Args)]
pub struct Generate {
    /// The folder, which must be there
    pub folder: PathBuf,
}

/// `srpctl generator`: the folders of systemd.generator(7).
#[derive(Debug, Args)]
pub struct Generator {
    /// For units
    pub normal: PathBuf,
    /// For units that come before those of the administrator
    pub early: PathBuf,
    /// For units that come after those of packages
    pub late: PathBuf,
}

/// `srpctl targets`.
#[derive(Debug, Args)]
pub struct Targets {
    /// The root of the system whose initramfs is made
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub root: PathBuf,
    /// The initramfs to copy the files to
    #[arg(long, value_name = "FOLDER")]
    pub into: Option<PathBuf>,
    /// Instead: the identifiers of the targets that the firmware has booted from
    #[arg(long)]
    pub firmware: bool,
}

/// The one option that may be given more than once.
pub const ANSWERS_FROM: &str = "answers_from";

/// A login option: name in add_target, name of its value, help text.
pub const OPTIONS: [(&str, &str, &str); 23] = [
    (
        "dest",
        "ADDRESS:PORT",
        "Where the target listens: IPv4:PORT, [IPv6%INTERFACE]:PORT or NAME:PORT",
    ),
    (
        "id_ext",
        "HEX",
        "Identifier extension of the target; LIO: its srpt_service_guid",
    ),
    (
        "ioc_guid",
        "HEX",
        "GUID of the target's I/O controller; LIO: the same",
    ),
    ("src", "ADDRESS", "Address to log in from"),
    (
        "dgid",
        "HEX",
        "GID of the target, for a login by the InfiniBand connection manager",
    ),
    ("pkey", "HEX", "Partition of the target, with --dgid"),
    ("service_id", "HEX", "Service of the target, with --dgid"),
    (
        "initiator_ext",
        "HEX",
        "Distinguishes several logins at one target",
    ),
    ("io_class", "HEX", "Order of the identifiers: 0100 or ff00"),
    ("queue_size", "COMMANDS", "Commands per channel, 1 to 4096"),
    ("max_cmd_per_lun", "COMMANDS", "Commands per disk"),
    ("target_can_queue", "COMMANDS", "Commands per target"),
    (
        "max_sect",
        "SECTORS",
        "512-byte sectors per command, 8 to 131072",
    ),
    (
        "cmd_sg_entries",
        "NUMBER",
        "Memory descriptors in a message, 1 to 255",
    ),
    ("sg_tablesize", "NUMBER", "Segments per command, 1 to 2048"),
    (
        "ch_count",
        "NUMBER",
        "Channels, at most one per CPU; without it at most 16",
    ),
    (
        "comp_vector",
        "NUMBER",
        "Completion vector of the first channel",
    ),
    (
        "tl_retry_count",
        "NUMBER",
        "Retries of the transport, 2 to 7",
    ),
    (
        "ack_timeout",
        "EXPONENT",
        "Time until the transport retransmits, 4.096 us * 2^EXPONENT, 1 to 31",
    ),
    ("tos", "NUMBER", "Type of service, 0 to 255"),
    (
        ANSWERS_FROM,
        "ADDRESS:PORT",
        "Other node that responds to commands sent to the target; may be given several times",
    ),
    (
        "max_it_iu_size",
        "BYTES",
        "Longest message to the target, from 64; 0: no limit",
    ),
    (
        "allow_ext_sg",
        "0|1",
        "No effect; accepted for login strings of the C driver",
    ),
];

/// A session timeout: name in sysfs, help text.
pub const TIMEOUTS: [(&str, &str); 3] = [
    ("reconnect_delay", "Time between reconnect attempts"),
    (
        "fast_io_fail_tmo",
        "Time from the loss of the connection until I/O fails, so that another path is used",
    ),
    (
        "dev_loss_tmo",
        "Time from the loss of the connection until the session and its disks are removed",
    ),
];

/// The settings of a target on the command line, under the names of [`OPTIONS`] and [`TIMEOUTS`]
/// and in their order.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Login options.
    pub options: Vec<(&'static str, String)>,
    /// Session timeouts.
    pub timeouts: Vec<(&'static str, String)>,
}

impl Args for Settings {
    fn augment_args(mut command: ClapCommand) -> ClapCommand {
        let options = OPTIONS.map(|(name, value, help)| (name, value, help, "Login options"));
        let timeouts = TIMEOUTS.map(|(name, help)| (name, "SECONDS|off", help, "Timeouts"));
        for (name, value, help, heading) in options.into_iter().chain(timeouts) {
            command = command.arg(
                Arg::new(name)
                    .long(name.replace('_', "-"))
                    .alias(name)
                    .value_name(value)
                    .allow_negative_numbers(true)
                    .action(match name {
                        ANSWERS_FROM => ArgAction::Append,
                        _ => ArgAction::Set,
                    })
                    .help(help)
                    .help_heading(heading),
            );
        }
        command
    }

    fn augment_args_for_update(command: ClapCommand) -> ClapCommand {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, ClapError> {
        let given = |name: &'static str| {
            let values = matches.get_many::<String>(name).into_iter().flatten();
            values.map(move |value| (name, value.clone()))
        };
        Ok(Self {
            options: OPTIONS.iter().flat_map(|(name, ..)| given(name)).collect(),
            timeouts: TIMEOUTS.iter().flat_map(|(name, _)| given(name)).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), ClapError> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{
        option_error::Why,
        options::{Defaults, Options},
    };
    use clap::CommandFactory;

    #[test]
    fn is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_fits_a_page() {
        let mut command = Cli::command();
        command.build();
        let parts = command.get_subcommands().map(|part| part.clone());
        for mut part in parts.chain([command.clone()]) {
            let text = part.render_long_help().to_string();
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(100), "{longest:?} columns: {text}");
        }
    }

    #[test]
    fn the_driver_knows_every_option() {
        for (name, ..) in OPTIONS {
            let text = format!("{name}=1");
            let refused = Options::parse(text.as_bytes(), &Defaults::default());
            assert!(
                !matches!(refused, Err(e) if e.why == Why::Unknown),
                "{name}"
            );
        }
    }

    #[test]
    fn options_may_be_written_as_in_add_target() {
        let line = "srpctl connect --id_ext 1 --ioc-guid=2 --dest 10.0.0.1:5555";
        let Command::Connect(args) = Cli::parse_from(line.split(' ')).command else {
            panic!("not connect");
        };
        let names: Vec<_> = args
            .settings
            .options
            .iter()
            .map(|(name, _)| *name)
            .collect();
        assert_eq!(names, ["dest", "id_ext", "ioc_guid"]);
    }

    #[test]
    fn who_answers_may_be_several() {
        let line = "srpctl connect --id-ext 1 --answers-from 10.0.0.2:1 --answers-from 10.0.0.3:1";
        let Command::Connect(args) = Cli::parse_from(line.split(' ')).command else {
            panic!("not connect");
        };
        let from = |address: &str| (ANSWERS_FROM, address.to_string());
        assert_eq!(
            args.settings.options,
            [
                ("id_ext", "1".to_string()),
                from("10.0.0.2:1"),
                from("10.0.0.3:1")
            ]
        );
    }

    #[test]
    fn off_may_be_written_as_a_module_parameter_has_it() {
        let line = "srpctl connect --id-ext 1 --dev-loss-tmo -1";
        let Command::Connect(args) = Cli::parse_from(line.split(' ')).command else {
            panic!("not connect");
        };
        assert_eq!(args.settings.timeouts, [("dev_loss_tmo", "-1".to_string())]);
    }

    #[test]
    fn a_target_is_named_or_described() {
        for line in [
            "srpctl connect",
            "srpctl connect a --id-ext 1",
            "srpctl connect --queue-size 5",
            "srpctl disconnect",
            "srpctl disconnect --all host1",
            "srpctl connect --port 0 --id-ext 1",
            "srpctl connect --all a",
            "srpctl connect --all --save a",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The code that ends, requeues or reuses a command.
//!
//! This module has no code. It lists the callers in Linux 7.3, and why each of them spares a
//! command that the driver holds, that is, one for which a [`Command`](super::Command) exists.
//!
//! # After the driver has given the command up
//!
//! The following functions get a command from `scsi_done()`, which
//! [`Command::done`](super::Command::done) calls after giving the command up.
//!
//! - `scsi_complete()`, scsi_lib.c:1567: asks `scsi_decide_disposition()`; ends, requeues or fails
//!   the command.
//! - `scsi_finish_command()`, scsi.c:158; `scsi_io_completion()`, scsi_lib.c:1090;
//!   `scsi_end_request()`, :664: end it.
//! - `scsi_io_completion_action()`, scsi_lib.c:976-991; `scsi_mq_requeue_cmd()`, :115;
//!   `__scsi_queue_insert()`, :143: requeue it.
//! - `scsi_eh_scmd_add()`, scsi_error.c:327, from `scsi_complete()`: passes it to the error
//!   handler.
//! - `scsi_eh_get_sense()`, scsi_error.c:1380: sends REQUEST SENSE in it and ends it; skips a
//!   command that has timed out (`SCSI_EH_ABORT_SCHEDULED`).
//! - `flush_end_io()`, blk-flush.c:201; `__blk_mq_end_request()`, blk-mq.c:1141: end requests of
//!   the commands that the functions above end.
//! - `sg_rq_end_io()`, sg.c:1312; `st_scsi_execute_end()`, st.c:527; `scsi_bsg_uring_cmd_done()`,
//!   scsi_bsg.c:68; `eh_lock_door_done()`, scsi_error.c:2140: run as `end_io` of a request that
//!   has ended, and free it (`blk_mq_free_request()`).
//! - `scsi_execute_cmd()`, scsi_lib.c:333; `sg_io()`, scsi_ioctl.c:491; `sr_read_cdda_bpc()`,
//!   sr.c:961; `scsi_bsg_sg_io_fn()`, scsi_bsg.c:245: call `blk_execute_rq()`, which no signal
//!   ends, and then free the request. `scsi_scan.c`, `sd.c`, `sr.c` send by these only.
//!
//! # Before the driver has it
//!
//! - `scsi_queue_rq()`, scsi_lib.c:1854; `scsi_dispatch_cmd()`, :1615: end or requeue a command
//!   that does not get to `queuecommand`, or that it has refused: [`Rejected`](super::Rejected)
//!   counts for the command of that call only.
//! - `scsi_device_state_check()`, scsi_lib.c:1342: ends commands for a device that is offline,
//!   blocked or gone.
//! - `blk_mq_dispatch_rq_list()`, blk-mq.c:2143; `blk_mq_request_issue_directly()` and its callers,
//!   :2778, :2827, :3007; `__blk_mq_requeue_request()`, :2019, :2716: act on the result of
//!   `scsi_queue_rq()`.
//! - `blk_insert_flush()`, blk-flush.c:430; `dd_insert_request()`, mq-deadline.c;
//!   `bfq_insert_request()`, bfq-iosched.c; `blk_mq_submit_bio()`, blk-mq.c:3199: end or free a
//!   request in the block layer: empty flushes, merges.
//!
//! # In the error handler, for commands that have timed out
//!
//! Each function spares a command that is held, for the reason given:
//!
//! - `scsi_timeout()`, scsi_error.c:364, by `blk_mq_rq_timed_out()`, blk-mq.c:1640, or
//!   `blk_abort_request()`, blk-timeout.c:79: it ends nothing; a [`done`](super::Command::done)
//!   from then on does not touch the command. `srp_timed_out()`, scsi_transport_srp.c:603, may give
//!   it more time.
//! - `scmd_eh_abort_handler()`, scsi_error.c:167: ends or requeues the command after an abort,
//!   which is [`Success`](crate::scsi::Disposition::Success) only when it is not held.
//! - `scsi_eh_bus_device_reset()`, scsi_error.c:1642: ends all commands of the unit after a reset.
//!   The reset fails while one of them is held, and so does a `FastIoFail`.
//! - `scsi_eh_stu()`, scsi_error.c:1576: **asks the driver nothing.** When START UNIT and TEST UNIT
//!   READY in one command succeed, it ends all commands of the unit. Both are refused while a
//!   command of the unit is held, and it sends none unless a user sets `allow_restart`.
//! - `scsi_eh_tur()`, scsi_error.c:1460, `scsi_eh_test_devices()`, :1498: end all commands of a
//!   unit after a test. The test comes after a reset, and is refused as above.
//! - `scsi_eh_target_reset()`, scsi_error.c:1704; `scsi_eh_bus_reset()`, :1766: the template has no
//!   such handlers, so both end nothing.
//! - `scsi_eh_host_reset()`, scsi_error.c:1838; `scsi_eh_offline_sdevs()`, :1877: end all commands
//!   of the host after a reset with any outcome. The reset does not return while a command is held.
//! - `scsi_abort_eh_cmnd()`, scsi_error.c:1068: reuses its own command after an abort, else after a
//!   reset of the unit, else of the host, and ignores the outcome of the last.
//! - `scsi_send_eh_cmnd()`, scsi_error.c:1216: overwrites CDB, data and sense of a command that has
//!   failed (`scsi_eh_prep_cmnd()`). That command is not held, as it has sense data, or comes after
//!   a reset. [`with_sense`](super::Command::with_sense) leaves no valid sense in a command that is
//!   held.
//! - `scsi_eh_done()`, scsi_error.c:909: wakes the error handler for any command that it has sent.
//!   A late [`done`](super::Command::done) of an earlier use does not get there, see
//!   [`Command`](super::Command).
//! - `scsi_eh_flush_done_q()`, scsi_error.c:2273: ends or requeues what the steps above have ended.
//! - `scsi_ioctl_reset()`, scsi_error.c:2517: uses a command of its own, and ends no command.
//!
//! # Functions that wait
//!
//! For each function, the condition that it waits for:
//!
//! - `__scsi_remove_device()`, scsi_sysfs.c; `scsi_forget_host()`, scsi_scan.c;
//!   `blk_mq_destroy_queue()`: the queue freezes, so all requests have ended.
//! - `scsi_device_quiesce()`, `scsi_device_block()`, `scsi_block_targets()`, scsi_lib.c: no
//!   `queuecommand` runs; commands in flight stay in flight. `scsi_target_unblock()` and
//!   `srp_reconnect_rport()`, scsi_transport_srp.c:532, end none.
//! - `rport_fast_io_fail_timedout()`, scsi_transport_srp.c:424: calls
//!   [`terminate_rport_io`](crate::scsi::transport::srp) of the driver.
//! - `elevator_change()`, elevator.c:653; `queue_requests_store()`, blk-sysfs.c:66;
//!   `blk_mq_update_nr_hw_queues()`, which the midlayer does not call: the queue freezes before
//!   it gets other tags or requests.
//! - `blk_mq_hctx_notify_offline()`, blk-mq.c: until the requests of a CPU that goes offline have
//!   ended.
//! - `scsi_mq_exit_request()`, scsi_lib.c:2004, from `blk_mq_free_rqs()` and `blk_mq_exit_hctx()`:
//!   `exit_cmd_priv` waits until the command is not held.
//!
//! # Functions that iterate over requests
//!
//! `blk_mq_tagset_busy_iter()` and `blk_mq_queue_tag_busy_iter()` (blk-mq-tag.c) hold a reference
//! to each request during the call for it. They do not sleep, and may free a request that has ended
//! meanwhile. `blk_mq_in_driver_rw()`, `blk_mq_queue_inflight()`, `blk_mq_timeout_work()`, debugfs
//! and `scsi_host_busy()` only read. In the midlayer, `scsi_host_complete_all_commands()`,
//! hosts.c:730, ends commands; drivers call it, this abstraction does not. `scsi_schedule_eh()`,
//! `scsi_eh_finish_cmd()` and `scsi_eh_ready_devs()` are for hosts with an `eh_strategy_handler`,
//! such as libata's; the template has none.

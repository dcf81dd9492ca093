//! `evenkeel check`: the judgement of `evenkeel report`, with an exit code for scripts.
//!
//! Here belongs only what makes it fail; looking and judging are in `judge`. The invariant: it neither passes
//! nor fails where no kube-apiserver's version is known, because nothing was judged then.

use super::args::CheckArgs;
use super::exit::{EXIT_FINDINGS, EXIT_OK, print};
use super::judge::report_of;
use super::output::{self, ReportStyle};

pub(super) async fn run(args: CheckArgs) -> Result<u8, String> {
    let report = report_of(&args.observe, "check").await?;
    // Whatever it fails on: that the version is missing is itself a warning, and is no finding about the cluster.
    if report.judged.servers.is_none() {
        return Err(report.without_servers.map_or_else(
            || "no kube-apiserver's version is known; say --apiserver-version v1.36.4".to_owned(),
            |line| format!("nothing can be judged: {line}"),
        ));
    }
    let failed = report.outcomes().iter().any(|outcome| outcome.level <= args.fail_on);
    let (paint, width) = (output::paint(args.form.color), output::width());
    let style = ReportStyle { check: true, fail_on: args.fail_on, paint, width };
    print(&output::render(&report, args.form.output, style)?)?;
    Ok(if failed { EXIT_FINDINGS } else { EXIT_OK })
}

//! `evenkeel report`: the judgement of a cluster or of files, without an operator.
//!
//! Here belongs only its exit code; looking and judging are in `judge`, the forms in `output`. The invariant: it fails
//! for what is unsupported, and not for what could not be seen.

use evenkeel_core::skew::Verdict;

use super::args::ReportArgs;
use super::exit::{EXIT_FINDINGS, EXIT_OK, print};
use super::judge::report_of;
use super::output::{self, Level, ReportStyle};

pub(super) async fn run(args: ReportArgs) -> Result<u8, String> {
    let report = report_of(&args.observe, "report").await?;
    let (paint, width) = (output::paint(args.form.color), output::width());
    let style = ReportStyle { check: false, fail_on: Level::Violation, paint, width };
    print(&output::render(&report, args.form.output, style)?)?;
    Ok(if report.judged.supported == Verdict::False { EXIT_FINDINGS } else { EXIT_OK })
}

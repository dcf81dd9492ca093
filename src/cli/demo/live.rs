//! The demonstration in a terminal: the current report, and keys that make things happen.
//!
//! The invariant: however the demonstration ends, it leaves the terminal as it was before.

use std::fmt::Write as _;
use std::io::{Write as _, stdout};
use std::path::Path;
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers, poll, read};
use crossterm::style::Print;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};
use evenkeel_sim::Pace;
use tokio::sync::mpsc;

use super::super::output::ReportStyle;
use super::super::output::paint::Ink;
use super::super::output::table::fitting;
use super::presentation::{Presentation, REPORTS, UPGRADES};
use crate::demo::Scenario;
use crate::operator::shutdown::on_signal;

/// Longest time between two redraws while nobody presses a key.
const TICK: Duration = Duration::from_millis(250);
const FASTEST: u32 = 640;
/// How many lines of the section HAPPENED are shown: the newest.
const LINES: usize = 7;

/// How many lines of what the upgrade waits for are shown.
const WAITS: usize = 3;

/// What a person wants.
enum TerminalInput {
    Key(KeyCode),
    /// No key was pressed, but there may be something new to draw.
    Tick,
    /// The terminal is gone.
    End,
}

/// The terminal in raw mode on the alternate screen; dropping this gives it back.
struct Screen;

impl Screen {
    fn take() -> std::io::Result<Self> {
        enable_raw_mode()?;
        // From here on, dropping `screen` restores the terminal, also when the next line fails.
        let screen = Self;
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // An error here cannot be reported: the terminal is what failed.
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Shows the demonstration until a person quits, a signal comes or the terminal is gone.
pub(super) async fn show(
    presentation: &Presentation,
    pace: &Pace,
    kubeconfig: Option<&Path>,
) -> Result<(), String> {
    let stop = on_signal().map_err(|error| error.to_string())?;
    let screen = Screen::take().map_err(|error| format!("cannot use this terminal: {error}"))?;
    let (send, mut inputs) = mpsc::unbounded_channel();
    // A thread waits for keys in real time, whatever speed the cluster's time has. It ends when `inputs` is dropped.
    std::thread::spawn(move || while send.send(input()).is_ok() {});
    let mut view = LiveView { scroll: 0, resume: pace.speed(), problem: None };
    loop {
        view.draw(presentation, pace, kubeconfig).await?;
        let Some(Some(input)) = stop.run_until_cancelled(inputs.recv()).await else { break };
        match input {
            TerminalInput::End | TerminalInput::Key(KeyCode::Char('q') | KeyCode::Esc) => break,
            TerminalInput::Key(key) => view.key(presentation, pace, key).await,
            TerminalInput::Tick => {}
        }
    }
    drop(screen);
    Ok(())
}

fn input() -> TerminalInput {
    match poll(TICK).and_then(|there| if there { read().map(Some) } else { Ok(None) }) {
        Ok(Some(Event::Key(key))) if key.kind == KeyEventKind::Press => {
            let interrupt = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
            if interrupt { TerminalInput::End } else { TerminalInput::Key(key.code) }
        }
        Ok(_) => TerminalInput::Tick,
        Err(_) => TerminalInput::End,
    }
}

/// What a person looks at.
struct LiveView {
    /// The first line of the report that is shown.
    scroll: usize,
    /// The speed that the space key goes back to after it stopped the time.
    resume: u32,
    problem: Option<String>,
}

impl LiveView {
    async fn key(&mut self, presentation: &Presentation, pace: &Pace, key: KeyCode) {
        let demo = &presentation.demo;
        let by_operator = presentation.scenario == Scenario::Upgrade;
        let done = match key {
            KeyCode::Char('a') => demo.propose_or_approve().await,
            KeyCode::Char('s') => demo.suspend_or_resume().await,
            KeyCode::Char('c') => demo.cordon_or_uncordon().await,
            KeyCode::Char('u') if !by_operator => {
                demo.upgrade_control_plane();
                Ok(())
            }
            KeyCode::Char('k') => {
                demo.kill_or_start();
                Ok(())
            }
            KeyCode::Char('n') => {
                demo.add_old_node();
                Ok(())
            }
            KeyCode::Char('h') if !by_operator => demo.upgrade_oldest_kubelets().await,
            KeyCode::Char('b') => demo.mend_or_break_budgets().await,
            KeyCode::Char('+') => {
                pace.set((pace.speed().max(1) * 2).min(FASTEST));
                return;
            }
            KeyCode::Char('-') => {
                pace.set((pace.speed() / 2).max(1));
                return;
            }
            KeyCode::Char(' ') => {
                let now = pace.speed();
                pace.set(if now == 0 { self.resume } else { 0 });
                self.resume = now.max(1);
                return;
            }
            KeyCode::Down => return self.scroll += 1,
            KeyCode::Up => return self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Home => return self.scroll = 0,
            _ => return,
        };
        self.problem = done.err();
    }

    async fn draw(
        &mut self,
        presentation: &Presentation,
        pace: &Pace,
        kubeconfig: Option<&Path>,
    ) -> Result<(), String> {
        let lost = |error: std::io::Error| format!("cannot use this terminal: {error}");
        let (width, height) = size().map_err(lost)?;
        let picture = self.picture(presentation, pace, kubeconfig, (width.into(), height.into())).await?;
        let mut out = stdout().lock();
        queue!(out, MoveTo(0, 0)).map_err(lost)?;
        for (at, line) in picture.iter().enumerate() {
            // Every line is placed by its row, whatever the terminal does at its right edge.
            let row = u16::try_from(at).unwrap_or(height);
            queue!(out, MoveTo(0, row), Clear(ClearType::CurrentLine), Print(line)).map_err(lost)?;
        }
        queue!(out, Clear(ClearType::FromCursorDown)).map_err(lost)?;
        out.flush().map_err(lost)
    }

    /// The lines of the screen, at most as many as fit.
    async fn picture(
        &mut self,
        presentation: &Presentation,
        pace: &Pace,
        kubeconfig: Option<&Path>,
        (width, height): (usize, usize),
    ) -> Result<Vec<String>, String> {
        let paint = presentation.style.paint;
        let speed = match pace.speed() {
            0 => "stopped".to_owned(),
            1 => "as fast as here".to_owned(),
            speed => format!("{speed} times as fast as here"),
        };
        let title = format!(
            "evenkeel demo   {}   {}   {speed}",
            presentation.title,
            presentation.demo.now().strftime("%Y-%m-%d %H:%M:%S")
        );
        let mut top = vec![paint.on(Ink::Bold, &title)];
        top.extend(kubeconfig.map(|path| format!("kubectl: export KUBECONFIG={}", path.display())));
        top.push(String::new());
        for resource in [REPORTS, UPGRADES] {
            let table = presentation.kubectl(resource).await?;
            // Only a header, where there is no object.
            if table.lines().count() > 1 {
                top.extend(fitting(&table, width).lines().map(str::to_owned));
                top.push(String::new());
            }
        }
        let waits = fitting(&presentation.waits().await?, width);
        if !waits.is_empty() {
            top.push(paint.on(Ink::Bold, "IT WAITS FOR"));
            top.extend(waits.lines().take(WAITS).map(str::to_owned));
            top.push(String::new());
        }
        let (happened, _) = presentation.happened(0);
        let happened = fitting(&happened, width);
        let happened: Vec<&str> = happened.lines().collect();
        let mut bottom = vec![String::new(), paint.on(Ink::Bold, "HAPPENED")];
        bottom.extend(
            happened.iter().skip(happened.len().saturating_sub(LINES)).map(|line| (*line).to_owned()),
        );
        bottom.extend(self.problem.as_ref().map(|problem| paint.on(Ink::Bad, problem)));
        bottom.push(String::new());
        bottom.extend(keys(presentation.scenario, width).lines().map(str::to_owned));
        let report = match presentation.report_now(ReportStyle { width: Some(width), ..presentation.style }) {
            Ok(report) => report,
            Err(not_ready) => not_ready,
        };
        let report: Vec<&str> = report.lines().collect();
        let room = height.saturating_sub(top.len() + bottom.len()).max(1);
        self.scroll = self.scroll.min(report.len().saturating_sub(room));
        let mut shown: Vec<String> =
            report.iter().skip(self.scroll).take(room).map(|line| (*line).to_owned()).collect();
        let below = report.len().saturating_sub(self.scroll + room);
        if below > 0
            && let Some(last) = shown.last_mut()
        {
            *last = format!("↓ {} more lines", below + 1);
        }
        shown.resize(room, String::new());
        top.extend(shown);
        top.extend(bottom);
        top.truncate(height);
        Ok(top)
    }
}

fn keys(scenario: Scenario, width: usize) -> String {
    const BY_HAND: [(&str, &str); 2] = [
        ("u", "upgrade the next part of the control plane by hand"),
        ("h", "upgrade the oldest kubelets by hand"),
    ];
    let by_hand = if scenario == Scenario::Upgrade { &[][..] } else { &BY_HAND };
    let always = [
        ("a", "write a ClusterUpgrade, then approve it"),
        ("s", "suspend it, or resume it"),
        ("b", "mend the budgets, or break one"),
        ("c", "cordon a node, or uncordon it"),
        ("k", "kill a kube-apiserver, or start it"),
        ("n", "add a node that is too old"),
        ("↑↓", "scroll"),
        ("space", "stop the time"),
        ("+ -", "its speed"),
        ("q", "quit"),
    ];
    let mut text = String::new();
    for (key, what) in by_hand.iter().chain(&always) {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "{}[{key}]\u{a0}{}",
            if text.is_empty() { "" } else { "  " },
            what.replace(' ', "\u{a0}")
        );
    }
    fitting(&text, width).replace('\u{a0}', " ")
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;
    use evenkeel_core::skew::lifecycle::Catalogue;
    use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

    use super::super::super::output::{Color, Level, paint};
    use super::*;
    use crate::demo::{Demo, Setting};

    async fn begun() -> Presentation {
        let releases = Catalogue::shipped().unwrap();
        let setting = Setting { seed: 1, scenario: Scenario::value_variants()[0], served: false };
        let demo = Demo::begin(setting, releases.clone()).await.unwrap();
        let style =
            ReportStyle { check: false, fail_on: Level::Violation, paint: paint(Color::Never), width: None };
        Presentation {
            demo,
            style,
            releases,
            scenario: setting.scenario,
            title: "upgrade, seed 1".to_owned(),
        }
    }

    /// Waits until `told` is among what happened since the `from`th line, for a minute of the cluster's time.
    async fn happens(presentation: &Presentation, from: usize, told: &str) {
        for _ in 0..60 {
            if presentation.happened(from).0.contains(told) {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("{told:?} does not happen:\n{}", presentation.happened(from).0);
    }

    #[tokio::test(start_paused = true)]
    async fn budgets_are_mended_and_one_is_broken_by_the_same_key() {
        let (presentation, pace) = (begun().await, Pace::begin(FASTEST));
        let mut view = LiveView { scroll: 0, resume: 1, problem: None };
        let allowed = async |name: &str| {
            let (namespace, name) = name.split_once('/').unwrap();
            let client = presentation.demo.client().clone();
            let budgets = kube::Api::<PodDisruptionBudget>::namespaced(client, namespace);
            budgets.get(name).await.unwrap().spec.unwrap().max_unavailable
        };
        for (told, name, may) in [
            ("PodDisruptionBudget data/ledger now allows one unavailable pod", "data/ledger", 1),
            ("PodDisruptionBudget shop/web now allows no unavailable pod", "shop/web", 0),
            ("PodDisruptionBudget shop/web now allows one unavailable pod", "shop/web", 1),
        ] {
            let from = presentation.happened(0).1;
            view.key(&presentation, &pace, KeyCode::Char('b')).await;
            happens(&presentation, from, told).await;
            assert_eq!((allowed(name).await, &view.problem), (Some(IntOrString::Int(may)), &None), "{told}");
            // Their status follows a moment later.
            tokio::time::sleep(Duration::from_secs(30)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_upgrade_is_written_and_approved_by_the_same_key() {
        let (presentation, pace) = (begun().await, Pace::begin(FASTEST));
        let mut view = LiveView { scroll: 0, resume: 1, problem: None };
        view.key(&presentation, &pace, KeyCode::Char('a')).await;
        presentation.demo.until(&["AwaitingApproval"]).await.unwrap();
        let hash = presentation.demo.upgrade().await.unwrap().unwrap().status.unwrap().plan.unwrap().hash;
        let from = presentation.happened(0).1;
        view.key(&presentation, &pace, KeyCode::Char('a')).await;
        happens(&presentation, from, &format!("plan {hash} of ClusterUpgrade to-137 is approved")).await;
        presentation.demo.until(&["UpgradingApiservers"]).await.unwrap();
        // One that is under way waits for no approval.
        let from = presentation.happened(0).1;
        view.key(&presentation, &pace, KeyCode::Char('a')).await;
        happens(&presentation, from, "ClusterUpgrade to-137 waits for no approval").await;
        assert_eq!(view.problem, None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_speed_is_doubled_and_halved_within_its_bounds() {
        let (presentation, pace) = (begun().await, Pace::begin(10));
        let mut view = LiveView { scroll: 0, resume: 10, problem: None };
        let mut press = async |key| {
            view.key(&presentation, &pace, KeyCode::Char(key)).await;
            pace.speed()
        };
        let mut speeds = Vec::new();
        for key in "+++++++-------------".chars() {
            speeds.push(press(key).await);
        }
        assert_eq!(speeds[..7], [20, 40, 80, 160, 320, 640, 640]);
        assert_eq!(speeds[7..], [320, 160, 80, 40, 20, 10, 5, 2, 1, 1, 1, 1, 1]);
        // From a stop it goes on at twice the slowest.
        assert_eq!((press(' ').await, press('+').await), (0, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn the_picture_fits_whatever_the_terminal() {
        let (presentation, pace) = (begun().await, Pace::begin(10));
        let mut view = LiveView { scroll: 0, resume: 10, problem: None };
        view.key(&presentation, &pace, KeyCode::Char('k')).await;
        for size in [(200, 70), (160, 50), (100, 30), (40, 8), (1, 1)] {
            view.scroll = 0;
            let lines = view.picture(&presentation, &pace, None, size).await.unwrap();
            assert!(lines.len() <= size.1, "{size:?}: {} lines", lines.len());
            if size.1 >= 50 {
                let text = lines.join("\n");
                for part in ["Verdict", "kube-apiserver on cp-3 is killed", "[q] quit"] {
                    assert!(text.contains(part), "{size:?} lacks {part}: {text}");
                }
            }
        }
        view.scroll = usize::MAX;
        let end = view.picture(&presentation, &pace, None, (160, 50)).await.unwrap().join("\n");
        assert!(end.contains("BUDGETS THAT LET NO POD GO") && !end.contains("more lines"), "{end}");
        view.key(&presentation, &pace, KeyCode::Char('k')).await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        for (key, told) in
            [('a', "approval"), ('s', "to-137 is suspended"), ('c', "kubectl cordon general-9")]
        {
            view.key(&presentation, &pace, KeyCode::Char(key)).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            let now = view.picture(&presentation, &pace, None, (160, 60)).await.unwrap().join("\n");
            assert!(now.contains("IT WAITS FOR") && now.contains(told), "{key}: {now}");
        }
        view.key(&presentation, &pace, KeyCode::Char(' ')).await;
        assert_eq!(pace.speed(), 0);
        view.key(&presentation, &pace, KeyCode::Char(' ')).await;
        assert_eq!(pace.speed(), 10);
    }
}

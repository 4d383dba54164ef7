//! How wide the next step is: by the times of steps, the rows that wait, and the target.

/// Times of which the longer is at most this many times the shorter are measurements of one.
const NOISE: f64 = 1.1;

/// The time of one step of a width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTime {
    /// Tokens of the step, padding included.
    pub width: usize,
    /// Microseconds with a full cache.
    pub us: f64,
    /// Microseconds with an empty one: what attention adds to it grows with what a row sees.
    pub us_empty: f64,
}

impl StepTime {
    /// A step that takes as long whatever is in the cache.
    pub const fn new(width: usize, us: f64) -> Self {
        Self { width, us, us_empty: us }
    }

    /// With a cache that is full to a share, 0 to 1.
    fn at(self, share: f64) -> Self {
        let us = self.us_empty + (self.us - self.us_empty) * share.clamp(0.0, 1.0);
        Self { us, ..self }
    }
}

/// The widths that a model has, with their times.
///
/// *Invariant*: at least one; widths ascend and are not 0; times are finite and above 0.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTimes(Vec<StepTime>);

impl StepTimes {
    /// Sorts them; of a width that is there twice the shorter time counts. A step that took a little longer than a wider one takes as long:
    /// the difference is the measurement's, and the wider one would be half empty for nothing. `None` for no width that has a time.
    pub fn new(times: impl IntoIterator<Item = StepTime>) -> Option<Self> {
        let is_time = |us: f64| us.is_finite() && us > 0.0;
        let good = |time: &StepTime| time.width > 0 && is_time(time.us) && is_time(time.us_empty);
        let mut times: Vec<_> = times.into_iter().filter(good).collect();
        times.sort_by(|a, b| a.width.cmp(&b.width).then(a.us.total_cmp(&b.us)));
        times.dedup_by_key(|time| time.width);
        let leveled = |us: f64, wider: f64| if us <= wider * NOISE { us.min(wider) } else { us };
        for at in (1..times.len()).rev() {
            let wider = times[at];
            let time = &mut times[at - 1];
            (time.us, time.us_empty) = (leveled(time.us, wider.us), leveled(time.us_empty, wider.us_empty));
        }
        (!times.is_empty()).then_some(Self(times))
    }

    /// For widths whose times are not known: a step takes one unit and a little for each token, so the narrowest that holds the
    /// rows is chosen and full ones are worth most.
    pub fn assumed(widths: impl IntoIterator<Item = usize>) -> Option<Self> {
        Self::new(widths.into_iter().map(|width| StepTime::new(width, 1_000.0 * (8.0 + width as f64))))
    }

    /// The times with a cache that is full to a share, 0 to 1.
    #[must_use]
    pub fn at(&self, share: f64) -> Self {
        Self(self.0.iter().map(|time| time.at(share)).collect())
    }

    /// Those of steps with at least `n` rows.
    pub(super) fn at_least(&self, n: usize) -> Option<Self> {
        let wide: Vec<_> = self.0.iter().copied().filter(|time| time.width >= n).collect();
        (!wide.is_empty()).then_some(Self(wide))
    }

    /// All, ascending.
    pub fn all(&self) -> &[StepTime] {
        &self.0
    }

    /// The widest step.
    pub fn widest(&self) -> usize {
        self.0.last().map_or(1, |time| time.width)
    }

    /// Time of the narrowest step that takes `n` rows; of the widest if none does.
    pub fn us_for(&self, n: usize) -> f64 {
        self.for_rows(n).map_or(0.0, |time| time.us)
    }

    /// Width of the narrowest step that takes `n` rows; of the widest if none does.
    pub fn width_for(&self, n: usize) -> usize {
        self.for_rows(n).map_or(1, |time| time.width)
    }

    fn for_rows(&self, n: usize) -> Option<&StepTime> {
        self.0.iter().find(|time| time.width >= n).or(self.0.last())
    }
}

/// What waits for rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// Replies that want a token.
    pub(super) replies: usize,
    /// Most of them in one step.
    pub(super) most_replies: usize,
    /// Requests that have, or will have, a reply: the length of a round.
    pub(super) in_round: usize,
    /// Tokens of their drafts.
    pub(super) drafts: usize,
    /// Tokens of prompts.
    pub(super) prompt: usize,
    /// Prompts must have rows now.
    pub(super) prompt_due: bool,
    /// Prompts and replies can be in one step.
    pub(super) fused: bool,
    /// The last row of a step of several is a reply's, or empty.
    pub(super) row_for_reply: bool,
    pub(super) target_us: Option<f64>,
}

/// A step that was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) width: usize,
    /// Replies that have a row.
    pub(super) replies: usize,
    pub(super) drafts: usize,
    pub(super) prompt: usize,
    /// Every reply gets its token within the target if steps go on like this.
    pub(super) in_time: bool,
}

/// Chooses; `None` if nothing waits.
pub(super) fn choose(times: &StepTimes, demand: Demand) -> Option<Choice> {
    let Demand { replies, most_replies, drafts, prompt, fused, row_for_reply, prompt_due, target_us, in_round } =
        demand;
    let at_once = most_replies.max(1);
    // Steps that a round of all replies takes with `n` in each.
    let steps = |n: usize| in_round.max(1).div_ceil(n.max(1)) as f64;
    // A round without prompts, by the best width for it.
    let round_us = |time: &StepTime| steps(time.width.min(at_once).min(in_round.max(1))) * time.us;
    let alone = times.all().iter().min_by(|a, b| round_us(a).total_cmp(&round_us(b)))?;
    let mut best: Option<(Choice, f64, f64)> = None;
    for time in times.all() {
        for with_replies in [true, false] {
            let n = if with_replies { replies.min(at_once).min(time.width) } else { 0 };
            let mut room = time.width - n;
            let most_prompt = time.width - usize::from(row_for_reply && time.width > 1);
            let n_prompt = if n > 0 && !fused { 0 } else { prompt.min(room).min(most_prompt) };
            // Drafts have what prompts leave only where those are not due; a prompt still gets a row.
            let kept_for_prompt = usize::from(n_prompt > 0 && prompt_due);
            let n_drafts = if n > 0 { drafts.min(room.saturating_sub(kept_for_prompt)) } else { 0 };
            room -= n_drafts;
            let n_prompt = n_prompt.min(room);
            let served = n + n_drafts + n_prompt;
            // Behind a step with a prompt, replies that wait are next: a step of prompts alone is at most every other one.
            let overtakes = n == 0 && replies > 0 && !prompt_due;
            if served == 0 || overtakes || (n_prompt == 0 && prompt_due) {
                continue;
            }
            let round = match (n, replies) {
                (_, 0) => 0.0,
                // A step of prompts alone comes between every two of replies.
                (0, _) => round_us(alone) + steps(alone.width.min(at_once).min(in_round.max(1))) * time.us,
                // In a round every step may be like this one.
                (n, _) => steps(n.max(at_once.min(time.width).min(in_round))) * time.us,
            };
            let in_time = target_us.is_none_or(|target| round <= target);
            let rate = served as f64 / time.us;
            let choice = Choice { width: time.width, replies: n, drafts: n_drafts, prompt: n_prompt, in_time };
            let better = match &best {
                None => true,
                Some((other, _, _)) if other.in_time != in_time => in_time,
                Some((_, other, _)) if in_time => rate > *other,
                Some((_, _, other)) => round < *other,
            };
            if better {
                best = Some((choice, rate, round));
            }
        }
    }
    match best {
        // No step has a row for a prompt and keeps the target: replies go on.
        None if prompt_due => choose(times, Demand { prompt_due: false, prompt: 0, ..demand }),
        best => best.map(|(choice, _, _)| choice),
    }
}

/// Steps of replies and of prompts that are run in turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turns {
    pub(super) of_replies: StepTime,
    pub(super) of_prompts: StepTime,
    /// Every reply gets its token within the target if steps go on like this.
    pub(super) in_time: bool,
}

/// Chooses the widths of two steps in turn: those that serve most rows in a microsecond, among those with which a round of all
/// replies, each step of it followed by one of a prompt, takes the target at most; the shortest round where none does.
pub(super) fn choose_turns(times: &StepTimes, demand: Demand) -> Option<Turns> {
    let in_round = demand.in_round.max(1);
    let mut best: Option<(Turns, f64, f64)> = None;
    for of_replies in times.all() {
        let replies = of_replies.width.min(demand.most_replies.max(1)).min(in_round);
        let steps = in_round.div_ceil(replies) as f64;
        for of_prompts in times.all() {
            let us = of_replies.us + of_prompts.us;
            let most_prompt = of_prompts.width - usize::from(demand.row_for_reply && of_prompts.width > 1);
            let (round, rate) = (steps * us, (replies + demand.prompt.min(most_prompt)) as f64 / us);
            let in_time = demand.target_us.is_none_or(|target| round <= target);
            let better = best.as_ref().is_none_or(|(other, other_rate, other_round)| match other.in_time == in_time {
                false => in_time,
                true if in_time => rate > *other_rate,
                true => round < *other_round,
            });
            if better {
                best = Some((Turns { of_replies: *of_replies, of_prompts: *of_prompts, in_time }, rate, round));
            }
        }
    }
    best.map(|(turns, _, _)| turns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(list: &[(usize, f64)]) -> StepTimes {
        StepTimes::new(list.iter().map(|&(width, us)| StepTime::new(width, us))).expect("there are widths")
    }

    /// The 1B of docs/serving.md, in milliseconds.
    fn llama() -> StepTimes {
        times(&[(1, 37.0), (8, 51.0), (16, 62.0), (32, 106.0), (64, 176.0), (128, 347.0)])
    }

    fn demand(replies: usize, prompt: usize, target_us: Option<f64>) -> Demand {
        Demand {
            replies,
            most_replies: usize::MAX,
            in_round: replies,
            drafts: 0,
            prompt,
            prompt_due: false,
            fused: true,
            row_for_reply: false,
            target_us,
        }
    }

    #[test]
    fn the_width_serves_most_within_the_target() {
        let chosen = |replies, prompt, target| choose(&llama(), demand(replies, prompt, target)).expect("there is one");
        let (no, strict) = (None, Some(150.0));
        for (replies, prompt, target, width, rows) in [
            (1, 0, no, 1, (1, 0)),
            (5, 0, no, 8, (5, 0)),
            (0, 500, no, 128, (0, 128)),
            (3, 500, strict, 32, (3, 29)),
            (3, 500, Some(110.0), 32, (3, 29)),
            (3, 500, Some(60.0), 8, (3, 5)),
            // Padding is not bought: 12 rows want 16, not 128; the ninth row alone is not worth 16.
            (2, 10, no, 16, (2, 10)),
            (2, 7, no, 8, (2, 6)),
            // No width keeps the target: the one that comes nearest.
            (3, 500, Some(10.0), 8, (3, 5)),
        ] {
            let choice = chosen(replies, prompt, target);
            assert_eq!((choice.width, (choice.replies, choice.prompt)), (width, rows), "{replies} {prompt} {target:?}");
        }
        assert_eq!(choose(&llama(), demand(0, 0, None)), None);
    }

    #[test]
    fn a_wide_step_for_few_rows_is_not_worth_it() {
        let two = times(&[(1, 37.0), (128, 347.0)]);
        let choice = choose(&two, demand(2, 0, None)).expect("there is one");
        assert_eq!((choice.width, choice.replies), (1, 1), "in turn");
        // A short prompt beside them comes to its row all the same.
        let due = Demand { prompt_due: true, ..demand(2, 1, None) };
        let choice = choose(&two, due).expect("there is one");
        assert_eq!((choice.width, choice.replies, choice.prompt), (1, 0, 1));
    }

    /// Found by the random traces: a prompt's pieces in steps of one row had more rows a microsecond than a wide step with a reply.
    #[test]
    fn pieces_of_a_prompt_do_not_follow_each_other_while_a_reply_waits() {
        let two = times(&[(1, 6.5), (4, 16.5)]);
        let waiting = Demand { in_round: 4, ..demand(1, 1, Some(23.1)) };
        let chosen = |prompt_due| choose(&two, Demand { prompt_due, ..waiting }).expect("there is one");
        assert_eq!((chosen(true).replies, chosen(true).prompt), (0, 1));
        assert_eq!((chosen(false).width, chosen(false).replies, chosen(false).prompt), (4, 1, 1));
    }

    #[test]
    fn a_wider_step_that_was_measured_a_little_shorter_is_not_taken_for_it() {
        let width =
            |us_of_one| choose(&times(&[(1, us_of_one), (4, 26.7), (8, 36.0)]), demand(1, 0, None)).expect("one").width;
        assert_eq!([26.0, 29.0, 40.0].map(width), [1, 1, 4]);
    }

    #[test]
    fn steps_in_turn_keep_the_target_together() {
        // Three replies in steps of one row are served fastest alone; with a wide step of a prompt behind each the round is too long.
        let two = times(&[(1, 13.0), (16, 53.0)]);
        let widths = |target_us| {
            let turns = choose_turns(&two, demand(3, 40, target_us)).expect("there are widths");
            (turns.of_replies.width, turns.of_prompts.width, turns.in_time)
        };
        assert_eq!(widths(Some(107.0)), (16, 16, true));
        assert_eq!(widths(Some(100.0)), (1, 1, true));
        assert_eq!(widths(Some(70.0)), (16, 1, true));
        assert_eq!(widths(Some(60.0)), (16, 1, false));
        // Without one the rows of both count alone.
        assert_eq!(widths(None), (1, 16, true));
    }

    /// Attention over a full cache makes eight rows dearer than twice four; with short contexts they are the best.
    #[test]
    fn a_width_is_worth_what_the_contexts_at_hand_cost() {
        let times = [(1, 14.0, 13.0), (4, 25.0, 14.0), (8, 55.0, 17.0)];
        let times = times.map(|(width, us, us_empty)| StepTime { width, us, us_empty });
        let times = StepTimes::new(times).expect("there are widths");
        let width = |share| choose(&times.at(share), demand(8, 0, None)).expect("there is one").width;
        assert_eq!([0.0, 0.1, 1.0].map(width), [8, 8, 4]);
        let us = |share| times.at(share).us_for(8);
        assert_eq!([0.0, 0.5, 1.0, 7.0].map(us), [17.0, 36.0, 55.0, 55.0]);
    }

    #[test]
    fn drafts_take_what_is_left() {
        let wanted = Demand { drafts: 14, ..demand(2, 0, None) };
        let choice = choose(&llama(), wanted).expect("there is one");
        assert_eq!((choice.width, choice.replies, choice.drafts), (16, 2, 14));
        let choice = choose(&llama(), Demand { target_us: Some(55.0), ..wanted }).expect("there is one");
        assert_eq!((choice.width, choice.replies, choice.drafts), (8, 2, 6));
    }

    #[test]
    fn bad_times_are_left_out() {
        assert!(StepTimes::new([StepTime::new(0, 1.0), StepTime::new(4, f64::NAN)]).is_none());
        assert!(StepTimes::new([StepTime { us_empty: 0.0, ..StepTime::new(4, 1.0) }]).is_none());
        let sorted = times(&[(8, 3.0), (1, 1.0), (8, 2.0)]);
        assert_eq!(sorted.all().iter().map(|t| (t.width, t.us)).collect::<Vec<_>>(), [(1, 1.0), (8, 2.0)]);
        assert_eq!((sorted.widest(), sorted.us_for(5), sorted.us_for(99)), (8, 2.0, 2.0));
    }
}

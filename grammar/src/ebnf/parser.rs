//! From text to rules, by recursive descent.

use std::collections::HashMap;

use super::reader::{self, Reader};
use super::syntax::{Node, Place, Rules};
use crate::{GrammarError, GrammarKind};

/// Deepest groups within each other.
const DEEPEST: usize = 200;
/// Most operators behind one element: each is a level that recursion follows, as a group is.
const MOST_OPERATORS: usize = 4;
/// Most groups and operators in all: each may become a rule of its own, which the parser follows by recursion.
const MOST_PARTS: usize = 30_000;
/// Most rules.
const MOST_RULES: usize = 10_000;
const ROOT: &str = "root";

struct Parser<'t> {
    reader: Reader<'t>,
    /// The rules that were defined or named, in the order in which they came.
    names: Vec<String>,
    numbers: HashMap<String, usize>,
    bodies: Vec<Option<Node>>,
    /// Where each rule was named first.
    named: Vec<Place>,
    depth: usize,
    /// Groups and operators.
    n_parts: usize,
}

pub(super) fn parse(text: &str) -> Result<Rules, GrammarError> {
    let reader = Reader::new(text.strip_prefix('\u{feff}').unwrap_or(text));
    let mut parser =
        Parser { reader, names: vec![], numbers: HashMap::new(), bodies: vec![], named: vec![], depth: 0, n_parts: 0 };
    let begin = parser.reader.place();
    parser.reader.skip_space();
    while parser.reader.peek().is_some() {
        parser.rule()?;
        if parser.names.len() > MOST_RULES {
            let message = format!("it has more than {MOST_RULES} rules");
            return Err(GrammarError::Unusable { kind: GrammarKind::Ebnf, message });
        }
    }
    let root = parser.numbers.get(ROOT).copied().filter(|root| parser.bodies[*root].is_some());
    let root =
        root.ok_or_else(|| begin.malformed(format!("the rule `{ROOT}` is not defined; it is where texts begin")));
    let mut bodies = Vec::with_capacity(parser.bodies.len());
    for (number, body) in parser.bodies.into_iter().enumerate() {
        let place = parser.named[number];
        bodies
            .push(body.ok_or_else(|| place.malformed(format!("the rule `{}` is not defined", parser.names[number])))?);
    }
    Ok(Rules { names: parser.names, bodies, root: root? })
}

impl Parser<'_> {
    fn rule(&mut self) -> Result<(), GrammarError> {
        let place = self.reader.place();
        let Some(name) = self.reader.name() else {
            return Err(place.malformed(format!("expected the name of a rule, found {}", self.reader.found())));
        };
        self.reader.skip_space();
        let at = self.reader.place();
        if !self.reader.take("::=") {
            let found = self.reader.found();
            return Err(at.malformed(format!("expected `::=` behind the name `{name}`, found {found}")));
        }
        let number = self.number_of(&name, place);
        if self.bodies[number].is_some() {
            return Err(place.malformed(format!("the rule `{name}` is defined twice")));
        }
        let body = self.choice()?;
        self.bodies[number] = Some(body);
        // Only a bracket that nothing opened can be left over.
        match self.reader.peek() {
            Some(')') => Err(self.reader.place().malformed("expected an element or a rule, found `)`")),
            _ => Ok(()),
        }
    }

    fn number_of(&mut self, name: &str, place: Place) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len();
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        self.bodies.push(None);
        self.named.push(place);
        number
    }

    fn choice(&mut self) -> Result<Node, GrammarError> {
        let mut all = vec![self.sequence()?];
        while self.reader.take("|") {
            all.push(self.sequence()?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Node::Choice(all) })
    }

    fn sequence(&mut self) -> Result<Node, GrammarError> {
        let mut all = Vec::new();
        loop {
            self.reader.skip_space();
            if self.at_end() {
                break;
            }
            all.push(self.repeated()?);
        }
        match all.len() {
            0 => {
                let found = self.reader.found();
                Err(self
                    .reader
                    .place()
                    .malformed(format!("expected an element, found {found}; `\"\"` is the empty text")))
            }
            1 => Ok(all.remove(0)),
            _ => Ok(Node::Sequence(all)),
        }
    }

    /// Whether a sequence is over: at a bar, a bracket, the next rule, or the end.
    fn at_end(&self) -> bool {
        if matches!(self.reader.peek(), None | Some('|' | ')')) {
            return true;
        }
        let mut ahead = self.reader.clone();
        ahead.name().is_some() && {
            ahead.skip_space();
            ahead.take("::=")
        }
    }

    fn repeated(&mut self) -> Result<Node, GrammarError> {
        let mut node = self.element()?;
        for n_operators in 0.. {
            let place = self.reader.place();
            let (min, max) = match self.reader.peek() {
                Some('{') => self.bounds()?,
                Some(sign @ ('*' | '+' | '?')) => {
                    self.reader.next();
                    (u32::from(sign == '+'), (sign == '?').then_some(1))
                }
                _ => break,
            };
            if n_operators >= MOST_OPERATORS {
                return Err(place.malformed(format!("expected at most {MOST_OPERATORS} operators behind an element")));
            }
            self.count()?;
            node = Node::Repeat { of: Box::new(node), min, max };
        }
        Ok(node)
    }

    /// Counts a group or an operator.
    fn count(&mut self) -> Result<(), GrammarError> {
        self.n_parts += 1;
        if self.n_parts > MOST_PARTS {
            let message = format!("it has more than {MOST_PARTS} groups and repetitions");
            return Err(GrammarError::Unusable { kind: GrammarKind::Ebnf, message });
        }
        Ok(())
    }

    /// `{n}`, `{n,}` or `{n,m}`.
    fn bounds(&mut self) -> Result<(u32, Option<u32>), GrammarError> {
        self.reader.next();
        self.reader.skip_space();
        let min = self.reader.number()?;
        self.reader.skip_space();
        let mut max = Some(min);
        if self.reader.take(",") {
            self.reader.skip_space();
            let place = self.reader.place();
            max = if self.reader.peek() == Some('}') { None } else { Some(self.reader.number()?) };
            if let Some(max) = max.filter(|max| *max < min) {
                return Err(place.malformed(format!("expected at least {min}, the lower bound, found {max}")));
            }
            self.reader.skip_space();
        }
        let place = self.reader.place();
        if !self.reader.take("}") {
            let found = self.reader.found();
            return Err(place.malformed(format!("expected `}}` behind the bounds of a repetition, found {found}")));
        }
        Ok((min, max))
    }

    fn element(&mut self) -> Result<Node, GrammarError> {
        let place = self.reader.place();
        match self.reader.peek() {
            Some('"') => self.reader.literal(),
            Some('[') => self.reader.class(),
            Some('.') => {
                self.reader.next();
                Ok(reader::any())
            }
            Some('(') => self.group(place),
            _ => match self.reader.name() {
                Some(name) => Ok(Node::Rule(self.number_of(&name, place))),
                None => Err(place.malformed(format!("expected an element, found {}", self.reader.found()))),
            },
        }
    }

    fn group(&mut self, place: Place) -> Result<Node, GrammarError> {
        self.reader.next();
        if self.reader.peek() == Some('=') {
            return Err(place.malformed("looking ahead with `(=` is not supported"));
        }
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(place.malformed(format!("expected at most {DEEPEST} groups within each other")));
        }
        self.count()?;
        let node = self.choice()?;
        self.depth -= 1;
        let at = self.reader.place();
        if !self.reader.take(")") {
            return Err(at.malformed(format!("expected `)`, found {}", self.reader.found())));
        }
        Ok(node)
    }
}

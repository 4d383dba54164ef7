//! Regular expressions in the dialect of libGenie's xgrammar: `\d \w \s` are ASCII, `.` is any character, `^` and `$` are
//! ignored since the whole text is matched, and what looks around is refused.

use llguidance::regex_to_lark;
use regex_syntax::ast::{
    self, Ast, ClassAscii, ClassAsciiKind, ClassBracketed, ClassPerl, ClassPerlKind, ClassSet, ClassSetItem,
};
use regex_syntax::hir::translate::TranslatorBuilder;
use regex_syntax::hir::{Hir, HirKind, Repetition};

use crate::{GrammarError, GrammarKind};

/// The grammar of a whole text that matches.
pub(crate) fn to_lark(text: &str) -> Result<String, GrammarError> {
    // A line break at the end is the editor's.
    let pattern = text.strip_suffix('\n').map_or(text, |line| line.strip_suffix('\r').unwrap_or(line));
    let mut ast = ast::parse::Parser::new().parse(pattern).map_err(|e| malformed(e.span(), &e.kind().to_string()))?;
    to_ascii(&mut ast);
    let mut translator = TranslatorBuilder::new().dot_matches_new_line(true).build();
    let hir = translator.translate(pattern, &ast).map_err(|e| malformed(e.span(), &e.kind().to_string()))?;
    let hir = without_anchors(hir, text)?;
    let printed = hir.to_string();
    Ok(match printed.as_str() {
        "" | "(?:)" => "start: \"\"".to_owned(),
        regex => format!("start: /{}/", regex_to_lark(regex, "")),
    })
}

fn malformed(span: &ast::Span, message: &str) -> GrammarError {
    let (line, column) = (span.start.line, span.start.column);
    GrammarError::Malformed { kind: GrammarKind::Regex, line, column, message: message.to_owned() }
}

/// Replaces the classes of letters and digits, which would be those of Unicode.
fn to_ascii(ast: &mut Ast) {
    match ast {
        Ast::ClassPerl(class) => {
            let span = class.span;
            let kind = ClassSet::Item(ascii_class(class));
            *ast = Ast::class_bracketed(ClassBracketed { span, negated: false, kind });
        }
        Ast::ClassBracketed(class) => ascii_set(&mut class.kind),
        Ast::Repetition(repetition) => to_ascii(&mut repetition.ast),
        Ast::Group(group) => to_ascii(&mut group.ast),
        Ast::Alternation(all) => all.asts.iter_mut().for_each(to_ascii),
        Ast::Concat(all) => all.asts.iter_mut().for_each(to_ascii),
        Ast::Empty(_) | Ast::Flags(_) | Ast::Literal(_) | Ast::Dot(_) | Ast::Assertion(_) | Ast::ClassUnicode(_) => {}
    }
}

fn ascii_set(set: &mut ClassSet) {
    match set {
        ClassSet::Item(item) => ascii_item(item),
        ClassSet::BinaryOp(op) => {
            ascii_set(&mut op.lhs);
            ascii_set(&mut op.rhs);
        }
    }
}

fn ascii_item(item: &mut ClassSetItem) {
    match item {
        ClassSetItem::Perl(class) => *item = ascii_class(class),
        ClassSetItem::Bracketed(class) => ascii_set(&mut class.kind),
        ClassSetItem::Union(all) => all.items.iter_mut().for_each(ascii_item),
        _ => {}
    }
}

fn ascii_class(class: &ClassPerl) -> ClassSetItem {
    let kind = match class.kind {
        ClassPerlKind::Digit => ClassAsciiKind::Digit,
        ClassPerlKind::Space => ClassAsciiKind::Space,
        ClassPerlKind::Word => ClassAsciiKind::Word,
    };
    ClassSetItem::Ascii(ClassAscii { span: class.span, kind, negated: class.negated })
}

fn without_anchors(hir: Hir, text: &str) -> Result<Hir, GrammarError> {
    let each = |hirs: Vec<Hir>| hirs.into_iter().map(|hir| without_anchors(hir, text)).collect::<Result<Vec<_>, _>>();
    Ok(match hir.into_kind() {
        HirKind::Look(look) => {
            use regex_syntax::hir::Look;
            if !matches!(look, Look::Start | Look::End | Look::StartLF | Look::EndLF | Look::StartCRLF | Look::EndCRLF)
            {
                let at = ["\\b", "\\B"].into_iter().filter_map(|b| text.find(b)).min().unwrap_or(0);
                let column = text[..at].chars().count() + 1;
                let message = "word boundaries are not supported".to_owned();
                return Err(GrammarError::Malformed { kind: GrammarKind::Regex, line: 1, column, message });
            }
            Hir::empty()
        }
        HirKind::Repetition(repetition) => {
            let sub = Box::new(without_anchors(*repetition.sub, text)?);
            Hir::repetition(Repetition { sub, greedy: true, ..repetition })
        }
        // The name and the number of a group mean nothing here.
        HirKind::Capture(capture) => without_anchors(*capture.sub, text)?,
        HirKind::Concat(all) => Hir::concat(each(all)?),
        HirKind::Alternation(all) => Hir::alternation(each(all)?),
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) => Hir::literal(literal.0),
        HirKind::Class(class) => Hir::class(class),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_become_those_of_ascii_without_anchors() {
        let cases = [
            (r"^ab$", "start: /(?:ab)/"),
            (r"\d{2}", "start: /[0-9]{2}/"),
            ("", "start: \"\""),
            ("a/b\n", r"start: /(?:a\/b)/"),
        ];
        for (text, expected) in cases {
            assert_eq!(to_lark(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_followed_is_refused_with_its_place() {
        for (text, line, column) in
            [("[a-z", 1, 1), ("a{2,", 1, 2), ("(?=a)b", 1, 1), ("ab(", 1, 3), ("a\\bc", 1, 2), ("(a)\\1", 1, 4)]
        {
            match to_lark(text) {
                Err(GrammarError::Malformed { line: l, column: c, .. }) => assert_eq!((l, c), (line, column), "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}

package doctor

import (
	"context"
	"regexp/syntax"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
)

const (
	maxCEL      = 4 << 10 // characters; Google takes no longer ones
	maxCELDepth = 40
	maxCELCost  = 100_000 // of an evaluation, in the units of cel-go
	// maxConcatenations and maxPattern bound what cel-go does in one step, in which it looks at neither cost nor context.
	maxConcatenations = 50
	maxPattern        = 1000 // of all regular expressions together, in what a machine for them has to look at for each character
)

// evaluateCEL evaluates an attribute mapping or an attribute condition of Google Cloud. It returns a string or a bool, or nil for
// all else: what is not known, Google's own functions, what is an error, what takes too long.
//
// Whoever owns the provider chooses the expression. It has no loops and no variables, so that work and memory are bounded by its
// length and that of the token.
func evaluateCEL(ctx context.Context, expression string, names celNames) any {
	return ending(ctx, "an expression", func() any { return names.evaluate(expression) }, func(error) any { return nil })
}

func (n celNames) evaluate(expression string) any {
	env, err := cel.NewEnv(append(n.declared, cel.ParserExpressionSizeLimit(maxCEL), cel.ParserRecursionLimit(maxCELDepth),
		cel.ClearMacros(), cel.Macros(cel.HasMacro))...)
	if err != nil {
		return nil
	}
	checked, issues := env.Compile(expression)
	if issues.Err() != nil || !isCheap(checked.NativeRep().Expr()) {
		return nil
	}
	program, err := env.Program(checked, cel.CostLimit(maxCELCost), cel.EvalOptions(cel.OptPartialEval))
	if err != nil {
		return nil
	}
	vars, err := cel.PartialVars(n.known, n.unknown...)
	if err != nil {
		return nil
	}
	value, _, err := program.Eval(vars)
	if err != nil {
		return nil
	}
	switch value := value.(type) {
	case types.Bool:
		return bool(value)
	case types.String:
		return string(value)
	}
	return nil
}

// isCheap refuses what takes long in one step: long chains of +, each of which copies or is walked by every later one, and
// regular expressions that are large or not written out.
func isCheap(expression ast.Expr) bool {
	concatenations, pattern := 0, 0
	ast.PostOrderVisit(expression, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		switch call := e.AsCall(); call.FunctionName() {
		case operators.Add:
			concatenations++
		case overloads.Matches:
			args := call.Args()
			pattern += patternSize(args[len(args)-1])
		}
	}))
	return concatenations <= maxConcatenations && pattern <= maxPattern
}

// patternSize is about how many instructions a regular expression becomes.
func patternSize(e ast.Expr) int {
	if e.Kind() != ast.LiteralKind {
		return maxPattern + 1
	}
	text, _ := e.AsLiteral().Value().(string)
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 1 // an error at once
	}
	return instructions(parsed)
}

func instructions(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		n += instructions(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= 1 + max(re.Min, re.Max)
	}
	return min(n, maxPattern+1)
}

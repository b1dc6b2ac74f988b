package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// celClaim is a claim that an expression looks at.
type celClaim struct {
	name string // as the expression has it
	path []string
}

// rejecting finds the part of a condition that is false, of several that have to be true, and the claims that it looks at. It
// reports false if that cannot be told.
func rejecting(ctx context.Context, condition string, names celNames) (part string, claims []celClaim, ok bool) {
	env, err := cel.NewEnv(cel.ParserExpressionSizeLimit(maxCEL), cel.ParserRecursionLimit(maxCELDepth))
	if err != nil {
		return "", nil, false
	}
	parsed, issues := env.Parse(condition)
	if issues.Err() != nil {
		return "", nil, false
	}
	tree := parsed.NativeRep()
	text := func(e ast.Expr) string {
		s, err := cel.ExprToString(e, tree.SourceInfo())
		if err != nil {
			return ""
		}
		return s
	}
	root := ast.NavigateAST(tree)
	for root.Kind() == ast.CallKind && root.AsCall().FunctionName() == operators.LogicalAnd {
		i := slices.IndexFunc(root.Children(), func(child ast.NavigableExpr) bool {
			return evaluateCEL(ctx, text(child), names) == any(false)
		})
		if i < 0 {
			break
		}
		root = root.Children()[i]
	}
	claims = claimsOf(root, text, nil)
	return text(root), claims, len(claims) > 0
}

func claimsOf(e ast.NavigableExpr, text func(ast.Expr) string, found []celClaim) []celClaim {
	if path, ok := claimPath(e); ok {
		name := strings.TrimSuffix(strings.TrimPrefix(text(e), "has("), ")") // names in brackets are in quotes
		if len(path) > 1 && !slices.ContainsFunc(found, func(c celClaim) bool { return c.name == name }) {
			found = append(found, celClaim{name, path})
		}
		return found
	}
	for _, child := range e.Children() {
		found = claimsOf(child, text, found)
	}
	return found
}

// claimPath is that of assertion.a['b'].c.
func claimPath(e ast.NavigableExpr) ([]string, bool) {
	member, children := "", e.Children()
	switch e.Kind() { //nolint:exhaustive // no other kind names a claim
	case ast.IdentKind:
		return []string{e.AsIdent()}, e.AsIdent() == "assertion" || e.AsIdent() == "google"
	case ast.SelectKind:
		member = e.AsSelect().FieldName()
	case ast.CallKind:
		const operands = 2
		if e.AsCall().FunctionName() != operators.Index || len(children) != operands || children[1].Kind() != ast.LiteralKind {
			return nil, false
		}
		key, ok := children[1].AsLiteral().Value().(string)
		if !ok {
			return nil, false
		}
		member = key
	default:
		return nil, false
	}
	path, ok := claimPath(children[0])
	return append(path, member), ok
}

// rejected marks the claims that a false condition looks at.
func (e *examination) rejected(ctx context.Context, f Finding, condition string, names celNames, subject string) Finding {
	part, claims, ok := rejecting(ctx, condition, names)
	if !ok {
		return f.with(differs("attribute condition", "false", condition))
	}
	const most = 5
	for _, c := range claims[:min(len(claims), most)] {
		f = f.with(differs(c.name, e.claimText(c.path, subject), part))
	}
	return f
}

func (e *examination) claimText(path []string, subject string) string {
	if path[0] == "google" {
		if len(path) == 2 && path[1] == "subject" {
			return subject
		}
		return "unknown"
	}
	var value any = e.payload()
	for _, member := range path[1:] {
		object, ok := value.(map[string]any)
		if !ok {
			return "none"
		}
		value = object[member]
	}
	switch value := value.(type) {
	case nil:
		return "none"
	case string:
		return value
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("a %T", value)
	}
	return string(text)
}

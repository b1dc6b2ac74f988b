package diagnose

import (
	"context"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
)

const (
	maxCEL      = 8 << 10 // characters; Google takes less
	maxCELDepth = 40
	maxCELCost  = 100_000 // of an evaluation, in the units of cel-go
)

// evaluateCEL evaluates an attribute mapping or an attribute condition of Google Cloud. It returns a string or a bool, or nil for
// all else: Google's own functions, what is an error, what takes too long.
func evaluateCEL(ctx context.Context, expression string, names map[string]any) any {
	options := []cel.EnvOption{cel.ParserExpressionSizeLimit(maxCEL), cel.ParserRecursionLimit(maxCELDepth)}
	for name := range names {
		options = append(options, cel.Variable(name, cel.MapType(cel.StringType, cel.DynType)))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		return nil
	}
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil
	}
	const checkEvery = 100
	program, err := env.Program(ast, cel.CostLimit(maxCELCost), cel.InterruptCheckFrequency(checkEvery))
	if err != nil {
		return nil
	}
	value, _, err := program.ContextEval(ctx, names)
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

// celNames are what mappings and conditions speak of. What is not known is there, and an error for whoever looks at it: numbers,
// of which programs differ in whether they are whole, and the subject if nil.
func celNames(claims map[string]any, subject *string) map[string]any {
	google := map[string]any{"subject": types.NewErr("unknown")}
	if subject != nil {
		google["subject"] = *subject
	}
	return map[string]any{"assertion": withoutNumbers(claims), "google": google}
}

func withoutNumbers(value any) any {
	switch value := value.(type) {
	case float64:
		return types.NewErr("a number")
	case []any:
		items := make([]any, 0, len(value))
		for _, item := range value {
			items = append(items, withoutNumbers(item))
		}
		return items
	case map[string]any:
		members := make(map[string]any, len(value))
		for name, member := range value {
			members[name] = withoutNumbers(member)
		}
		return members
	}
	return value
}

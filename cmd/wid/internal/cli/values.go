package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// None is the flag value for no claim or no Secret. An empty value may come
// from an unset variable of a script, and is refused.
const None = "none"

// CheckValue refuses a value that a script has not set, or that a person has
// not filled in.
func CheckValue(value string) error {
	switch {
	case strings.TrimSpace(value) == "":
		return Usagef("it is set but empty: give it a value, or leave it out")
	case isPlaceholder(value):
		return Usagef("%q is a placeholder: put the value of yours in its place", value)
	}
	return nil
}

// isPlaceholder knows the words in capitals that texts of wid print in place of
// what only the reader knows.
func isPlaceholder(value string) bool {
	return !slices.ContainsFunc(strings.Split(value, "/"), func(word string) bool {
		return !slices.Contains(placeholders(), word)
	})
}

func placeholders() []string {
	return strings.Fields(
		"ADDON ADDRESS AGENT_IMAGE AUDIENCE CA_FILE CLIENT_ID CLUSTER CLUSTER_ARN CLUSTER_CONTEXT CLUSTER_NAME CONTEXT " +
			"FILE HUB HUB_ARN HUB_IMAGE IMAGE ISSUER KID KUBECONFIG MANAGED_CLUSTER_ARN NAME NAMESPACE POD POD_NAME REQUEST " +
			"ROLE_ARN SERVER SERVER_ROLE_ARN SERVICE_ACCOUNT STORE USER_NAME")
}

// CheckFlag is CheckValue for the texts of a flag. A context may be named like
// a placeholder: the kubeconfig knows which exist.
func CheckFlag(f *pflag.Flag) error {
	values := []string{f.Value.String()}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		values = list.GetSlice()
	} else if f.Value.Type() != "string" {
		return nil
	}
	if len(values) == 0 {
		values = []string{""}
	}
	for _, value := range values {
		if err := CheckValue(value); err != nil && (kubeconfigOf()[f.Name] == "" || !isPlaceholder(value)) {
			return err
		}
	}
	return nil
}

const foreignArgs = "wid/foreign-arguments"

// ForeignArgs marks a command whose arguments are another program's: its flags
// end at the first one, and no argument is refused.
func ForeignArgs(cmd *cobra.Command) {
	cmd.Annotations = map[string]string{foreignArgs: "true"}
	cmd.Flags().SetInterspersed(false)
}

// checkValues refuses flags and arguments that are set to what CheckValue
// refuses.
func checkValues(cmd *cobra.Command, args []string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if problem := CheckFlag(f); problem != nil && err == nil {
			err = Usagef("--%s: %v", f.Name, problem)
		}
	})
	if cmd.Annotations[foreignArgs] != "" {
		return err
	}
	for i, arg := range args {
		if problem := CheckValue(arg); problem != nil && err == nil {
			err = Usagef("argument %d: %v", i+1, problem)
		}
	}
	return err
}

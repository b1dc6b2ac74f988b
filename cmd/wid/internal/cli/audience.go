package cli

import (
	"fmt"

	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/shell"
)

// ChosenAudience returns the remedy for an audience that an annotation of the
// ServiceAccount chose and that the cloud does not accept, and the command that
// removes it. Only AWS has such an annotation.
func ChosenAudience(namespace, name, audience string) (remedy, command string) {
	return fmt.Sprintf("The annotation %s of the ServiceAccount is %.300q. Remove it:", annotation.AWSAudience, audience),
		fmt.Sprintf("kubectl annotate sa -n %s %s %s-", shell.Word(namespace, "NAMESPACE"), shell.Word(name, "NAME"),
			annotation.AWSAudience)
}

package main

import (
	"slices"
	"strings"

	"github.com/workloadid/workloadid/internal/olddoctor"
	"github.com/workloadid/workloadid/internal/shell"
)

func (d *doctorFlags) inTermsOfFlags(f *doctor.Finding) {
	f.Message, f.Remedy = d.id.textOfFlags(f.Message), d.sameCluster(f.Number, d.id.textOfFlags(f.Remedy))
	f.Causes = slices.Clone(f.Causes) // they may be those of all findings of a class
	for i, cause := range f.Causes {
		f.Causes[i] = d.id.textOfFlags(cause)
	}
}

// sameCluster has kubectl ask the cluster that was examined, and says where that is before something is changed: mostly by
// somebody else, who has a kubeconfig of his own. Check 24 is about another cluster. Only where a line begins is it a command
// for sure: values of strangers may look like one.
func (d *doctorFlags) sameCluster(number int, remedy string) string {
	const other, kubectl, asks = 24, "kubectl ", "kubectl get --raw /version"
	flags := ""
	if d.id.kubeconfig != "" {
		flags += "--kubeconfig " + shell.Word(d.id.kubeconfig, "KUBECONFIG") + " "
	}
	if d.id.kubeContext != "" {
		flags += "--context " + shell.Word(d.id.kubeContext, "CONTEXT") + " "
	}
	if number == other || flags == "" {
		return remedy
	}
	var lines []string
	told := false
	for line := range strings.SplitSeq(remedy, "\n") {
		command, is := strings.CutPrefix(line, kubectl)
		verb, _, _ := strings.Cut(command, " ")
		switch before, atEnd := strings.CutSuffix(line, asks); {
		case is && slices.Contains([]string{"get", "describe", "logs"}, verb):
			line = kubectl + flags + command
		case is && !told:
			lines, told = append(lines, "in the cluster that "+flags+"leads to, as somebody who may:"), true
		case atEnd:
			line = before + kubectl + flags + strings.TrimPrefix(asks, kubectl)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

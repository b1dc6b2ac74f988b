package kube

import (
	"strings"

	"github.com/workloadid/workloadid/internal/doctor"
)

// Side is the cluster that the commands of a remedy are for.
type Side struct {
	// Flags lead kubectl and wid to the cluster: "--context hub". Empty: the current context.
	Flags string
	// Examined reports whether the doctor has read the cluster.
	Examined bool
}

// Command adds the flags to a command of kubectl or wid.
func (s Side) Command(command string) string {
	arguments, isKubectl := strings.CutPrefix(command, "kubectl ")
	switch {
	case s.Flags == "":
		return command
	case isKubectl:
		return "kubectl " + s.Flags + " " + arguments
	case strings.HasPrefix(command, "wid "):
		return command + " " + s.Flags
	}
	return command
}

// Do returns the remedy of a sentence and commands for the cluster.
func (s Side) Do(text string, commands ...string) doctor.Remedy {
	for i := range commands {
		commands[i] = s.Command(commands[i])
	}
	return doctor.Do(text, commands...)
}

// Lose is Do for commands that delete or deny something. It names what is lost, and has no commands for a cluster that was not examined.
func (s Side) Lose(text, lost string, commands ...string) doctor.Remedy {
	if !s.Examined {
		return doctor.Do(text + ". Examine that cluster too: then the report shows the commands.")
	}
	return s.Do(text+". You lose "+lost+":", commands...)
}

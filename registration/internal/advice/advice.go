// Package advice holds commands for readers of conditions and Events, who may
// have nothing but kubectl. Errors of Go name no commands.
package advice

import "github.com/workloadid/workloadid/internal/shell"

// Accept returns the command that accepts a cluster on its hub.
func Accept(cluster string) string { return "wid hub accept --clusters " + cluster }

// Approve returns the command that also approves one request. The name of a
// request may hold any text.
func Approve(cluster, request string) string {
	return Accept(cluster) + " --approve-request " + shell.Word(request, "REQUEST")
}

// Join returns the command that joins a cluster again.
func Join() string { return "wid join with a new token" }

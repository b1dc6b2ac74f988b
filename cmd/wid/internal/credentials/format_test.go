package credentials

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/auth/plugin"
)

func TestACredentialPrintsNoSecret(t *testing.T) {
	c := &credential{GitCredential: plugin.GitCredential{Password: "hunter2hunter2"}}
	var b bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetErr(&b)
	a := &App{Stderr: &b}
	a.warn("%v %+v %#v %s", c, c, c, c)
	if strings.Contains(b.String(), "hunter2") {
		t.Error(b.String())
	}
}

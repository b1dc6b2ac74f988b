package registration_test

import (
	"io"
	"testing"

	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/registration"
)

func TestAddOnFlags(t *testing.T) {
	for name, row := range map[string]struct {
		flags registration.AddOnFlags // before the command line
		args  []string
		want  registration.AddOnFlags
	}{
		"defaults": {want: registration.AddOnFlags{KubeClientAuth: "csr"}},
		"both": {args: []string{"--addon-kubeclient-registration-auth=token", "--addon-token-expiration-seconds=3600"},
			want: registration.AddOnFlags{KubeClientAuth: "token", TokenExpirationSeconds: 3600}},
		"defaults of the program": {flags: registration.AddOnFlags{KubeClientAuth: "token", TokenExpirationSeconds: 7200},
			want: registration.AddOnFlags{KubeClientAuth: "token", TokenExpirationSeconds: 7200}},
	} {
		t.Run(name, func(t *testing.T) {
			fs := pflag.NewFlagSet("agent", pflag.ContinueOnError)
			fs.SetOutput(io.Discard)
			got := row.flags
			got.BindFlags(fs)
			if err := fs.Parse(row.args); err != nil || got != row.want {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

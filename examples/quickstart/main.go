// Command quickstart shows the library's main job: ServiceAccounts of two
// tenants become AWS credentials, each with the tenant's own role, and what
// does not belong to a tenant is refused.
//
//	go run ./examples/quickstart
//
// Without flags nothing has to be set up: the cluster and the cloud run inside
// the program, and verify what they are sent as the real ones do. With
// --service-account, the ServiceAccount of a real cluster is used instead.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const usage = `Two tenants turn their ServiceAccounts into AWS credentials, each with its
own role. Then the program shows what a tenant is refused.

Without flags, cluster and cloud are simulated inside the program: they sign
and verify tokens as the real ones do, and nothing leaves this machine. With
--service-account the ServiceAccount and its token come from a real cluster,
and only the cloud is simulated.

Flags:
`

type flags struct {
	kubeconfig     string
	serviceAccount string
	region         string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if errors.Is(err, pflag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	f, err := parseFlags(args, out)
	if err != nil {
		return err
	}
	if f.serviceAccount == "" {
		return runEmbedded(ctx, f, newPrinter(out))
	}
	key, err := parseKey(f.serviceAccount)
	if err != nil {
		return err
	}
	return runCluster(ctx, f, key, newPrinter(out))
}

func parseFlags(args []string, out io.Writer) (flags, error) {
	var f flags
	fs := pflag.NewFlagSet("quickstart", pflag.ContinueOnError)
	fs.SetOutput(out)
	fs.Usage = func() { _, _ = fmt.Fprint(out, usage+fs.FlagUsagesWrapped(width)) }
	fs.StringVar(&f.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig of the cluster of --service-account")
	fs.StringVar(&f.serviceAccount, "service-account", "", "ServiceAccount of a real cluster, as namespace/name")
	fs.StringVar(&f.region, "region", "eu-central-1", "region of AWS STS")
	if err := fs.Parse(args); err != nil {
		return f, err
	}
	switch {
	case fs.NArg() > 0:
		return f, fmt.Errorf("unexpected argument %q; see --help", fs.Arg(0))
	case fs.Changed("kubeconfig") && f.serviceAccount == "":
		return f, errors.New("--kubeconfig needs --service-account namespace/name")
	case f.serviceAccount != "" && f.kubeconfig == "":
		return f, errors.New("--service-account needs --kubeconfig, or the environment variable KUBECONFIG")
	}
	return f, nil
}

func parseKey(s string) (client.ObjectKey, error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return client.ObjectKey{}, fmt.Errorf("--service-account is namespace/name, not %q", s)
	}
	return client.ObjectKey{Namespace: namespace, Name: name}, nil
}

// Command iam-credentials-provider gives pods AWS credentials through
// IAMBindings (KEP-14).
//
//	iam-credentials-provider server --audience=pod-identity.example.com --cluster=prod
//	iam-credentials-provider webhook --audience=pod-identity.example.com --image=registry.example/iam-credentials-pod:v1
//	iam-credentials-provider certificates
//
// The server issues credentials, and the webhook injects the sidecar,
// iam-credentials-pod, into pods. The third command makes and rotates the
// certificates of both.
//
// Copy main.go, server.go, webhook.go, certificates.go, authority.go,
// config/iam-credentials-provider and cmd/iam-credentials-pod.
// examples/podidentity shows them with nothing to set up.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/workloadid/workloadid"
	"github.com/workloadid/workloadid/podidentity/server"
	"github.com/workloadid/workloadid/podidentity/webhook"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the program at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, log io.Writer) error {
	root := newRoot(log)
	root.SetArgs(args)
	root.SetOut(out)
	return root.ExecuteContext(ctx)
}

func newRoot(log io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           name,
		Short:         "Give pods AWS credentials through IAMBindings",
		Version:       workloadid.Version(),
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("name the command server, webhook or certificates")
		},
	}
	root.AddCommand(newServerCommand(log), newWebhookCommand(log), newCertificatesCommand(log))
	return root
}

func newServerCommand(log io.Writer) *cobra.Command {
	o := serverOptions{common: common{registerer: metrics.Registry}}
	cmd := &cobra.Command{Use: "server", Short: "Issue credentials to pods", Args: cobra.NoArgs}
	f := cmd.Flags()
	o.bind(f, ":8443")
	f.StringVar(&o.cluster, "cluster", "",
		"name of this cluster, a DNS label, with which the names of sessions begin; required")
	f.StringVar(&o.region, "sts-region", "", "region of STS; that of AWS_REGION if empty")
	f.IntVar(&o.pods, "max-pods", 20_000, "pods whose credentials are kept in memory")
	f.IntVar(&o.connections, "max-connections", server.DefaultMaxConnections,
		"open connections; beyond it, the address with the most loses its oldest one")
	f.BoolVar(&o.leaderElect, "leader-elect", false, "elect the replica that writes the status of IAMBindings")
	f.StringVar(&o.leaderElectNamespace, "leader-elect-namespace", "", "namespace of the Lease; that of the pod if empty")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if o.cluster == "" {
			return errors.New("--cluster is missing: name this cluster, in the manifests by CLUSTER of the ConfigMap settings")
		}
		return nil
	}
	cmd.RunE = inCluster(log, func(ctx context.Context, kube *rest.Config) error { return runServer(ctx, kube, o) })
	return cmd
}

func newWebhookCommand(log io.Writer) *cobra.Command {
	o := webhookOptions{common: common{registerer: metrics.Registry}}
	cmd := &cobra.Command{Use: "webhook", Short: "Inject the sidecar into pods", Args: cobra.NoArgs}
	f := cmd.Flags()
	o.bind(f, ":9443")
	f.StringVar(&o.image, "image", "", "image of the sidecar, iam-credentials-pod; required")
	_ = cobra.MarkFlagRequired(f, "image") // it exists
	f.StringVar(&o.server, "server", "https://"+name+"."+namespace+".svc:8443", "address of the server")
	f.IntVar(&o.port, "port", webhook.DefaultPort, "loopback port of the sidecar, 1024 or higher")
	o.bindResources(f)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		_, _, err := o.resources()
		return err
	}
	cmd.RunE = inCluster(log, func(ctx context.Context, kube *rest.Config) error { return runWebhook(ctx, kube, o) })
	return cmd
}

func newCertificatesCommand(log io.Writer) *cobra.Command {
	o := certificateOptions{common: common{registerer: metrics.Registry}, now: time.Now}
	cmd := &cobra.Command{Use: "certificates", Short: "Make and rotate the certificates of server and webhook",
		Args: cobra.NoArgs}
	f := cmd.Flags()
	o.bindAddresses(f)
	f.StringVar(&o.namespace, "namespace", namespace, "namespace of the Services and of the Secrets")
	cmd.RunE = inCluster(log, func(ctx context.Context, kube *rest.Config) error { return runCertificates(ctx, kube, o) })
	return cmd
}

// bind adds the flags that server and webhook have.
func (c *common) bind(f *pflag.FlagSet, listen string) {
	f.StringVar(&c.audience, "audience", "", "audience of the pods' tokens, which only the server accepts; required")
	_ = cobra.MarkFlagRequired(f, "audience") // it exists
	f.StringVar(&c.listen, "listen", listen, "address of HTTPS")
	f.StringVar(&c.certs, "cert-dir", "/certs", "folder with tls.crt and tls.key; they are read again when they change")
	f.StringVar(&c.serverCA, "server-ca-file", "/certs/ca.crt",
		"PEM certificates that the certificate of the server chains to; while a CA rotates, the old one and the new one")
	c.bindAddresses(f)
}

// bindAddresses adds the flags that all commands have.
func (c *common) bindAddresses(f *pflag.FlagSet) {
	f.StringVar(&c.metricsAddress, "metrics-bind-address", ":8080", "address of /metrics; 0 turns it off")
	f.StringVar(&c.probeAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 turns them off")
}

// inCluster finds the API server and runs the work until a signal.
func inCluster(log io.Writer, work func(context.Context, *rest.Config) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		kube, err := ctrl.GetConfig() // before logTo, because it logs its error too
		if clientcmd.IsEmptyConfig(err) {
			return errors.New("run it in a cluster, or set KUBECONFIG")
		} else if err != nil {
			return fmt.Errorf("find the API server: %w", err)
		}
		if kube.Proxy == nil { // HTTPS_PROXY is for services outside the cluster
			kube.Proxy = http.ProxyURL(nil)
		}
		logTo(log)
		return work(cmd.Context(), kube)
	}
}

// logTo sends the logs of controller-runtime and client-go to a writer, as
// JSON.
func logTo(log io.Writer) {
	logger := logr.FromSlogHandler(slog.NewJSONHandler(log, nil))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
}

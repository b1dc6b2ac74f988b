package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/internal/testing/controlplane"
	"github.com/workloadid/workloadid/internal/testing/story"
)

// demo plays the life of a pod's credentials. Its steps are in story.go.
type demo struct {
	story.Printer
	dir     string // temporary files
	cluster *controlplane.Cluster
	admin   client.Client
	cloud   *authtest.Cloud
	server  serverOptions
	webhook webhookOptions
	ca      []byte // of server and webhook
	pod     *corev1.Pod
	token   string // of the pod

	stops   []func() error // run in reverse order
	running sync.WaitGroup
	fail    context.CancelCauseFunc
}

// runDemo stops everything that it has started, also when ctx ends.
func runDemo(ctx context.Context, out io.Writer) (err error) {
	assets, err := controlplane.Assets(ctx, os.Stderr)
	if err != nil {
		return err
	}
	start := time.Now()
	ctx, fail := context.WithCancelCause(ctx)
	d := &demo{Printer: story.Printer{Out: out}, fail: fail}
	defer func() {
		d.Say("Stopping the control plane and removing its files.")
		if err = errors.Join(err, d.stop()); err == nil {
			d.Say("Done in %s.", time.Since(start).Round(time.Second))
		}
	}()
	if err := d.setUp(assets); err != nil {
		return err
	}
	for _, step := range d.steps() {
		if err := step(ctx); err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
	}
	return nil
}

func (d *demo) stop() (err error) {
	d.fail(nil)
	d.running.Wait()
	for _, stop := range slices.Backward(d.stops) {
		err = errors.Join(err, stop())
	}
	return err
}

// setUp starts the control plane and the fake AWS, and writes a certificate as cert-manager does.
func (d *demo) setUp(assets string) (err error) {
	d.Say("A pod gets AWS credentials through an IAMBinding. Everything is embedded: a real API server with etcd runs on this machine, and AWS is simulated.")
	if d.dir, err = os.MkdirTemp("", "iam-credentials-"); err != nil {
		return err
	}
	d.stops = append(d.stops, func() error { return os.RemoveAll(d.dir) })
	if d.cloud, err = authtest.NewCloud(); err != nil {
		return err
	}
	d.stops = append(d.stops, func() error { d.cloud.Close(); return nil })
	if d.cluster, err = controlplane.Start(assets); err != nil {
		return err
	}
	d.stops = append(d.stops, d.cluster.Stop)
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	if d.admin, err = client.New(d.cluster.Config(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	d.ca, err = writeCertificate(d.dir)
	return err
}

// writeCertificate writes a certificate of 127.0.0.1, and returns the CA that it chains to.
func writeCertificate(dir string) ([]byte, error) {
	pem, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, err
	}
	for file, content := range map[string][]byte{"tls.crt": pem, "tls.key": key, "ca.crt": pem} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, file), content, 0o600))
	}
	return pem, err
}

// run runs a part until the demo ends. Its failure ends the demo.
func (d *demo) run(what string, work func() error) {
	d.running.Go(func() {
		if err := work(); err != nil {
			d.fail(fmt.Errorf("%s: %w", what, err))
		}
	})
}

// freeAddress returns a loopback address on which nothing listens.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not wait
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// requestToken asks for a token as the kubelet does.
func (d *demo) requestToken(ctx context.Context, namespace, name string, spec authenticationv1.TokenRequestSpec) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: spec}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := d.admin.SubResource("token").Create(ctx, account, request)
	return request.Status.Token, err
}

// configOf returns the configuration of a ServiceAccount of the installation.
func (d *demo) configOf(ctx context.Context, account string) (*rest.Config, error) {
	kube := rest.AnonymousClientConfig(d.cluster.Config())
	var err error
	kube.BearerToken, err = d.requestToken(ctx, namespace, account, authenticationv1.TokenRequestSpec{})
	return kube, err
}

// newDemoApp plays the application: a program that knows the AWS SDK and its own environment.
func newDemoApp() *cobra.Command {
	return &cobra.Command{Use: demoApp, Hidden: true, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		loaded, err := config.LoadDefaultConfig(cmd.Context())
		if err != nil {
			return err
		}
		who, err := sts.NewFromConfig(loaded).GetCallerIdentity(cmd.Context(), nil)
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), *who.Arn)
		return err
	}}
}

const demoApp = "demo-app"

// runApp runs the application with the variables of its container. The others lead to the fake AWS instead of the network.
func (d *demo) runApp(ctx context.Context, container *corev1.Container) (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	app := exec.CommandContext(ctx, program, demoApp) //nolint:gosec // this program
	if app.Env, err = d.cloud.ProxyEnv(d.dir); err != nil {
		return "", err
	}
	app.Env = append(app.Env, "HOME="+d.dir, "AWS_REGION="+region)
	for _, v := range container.Env {
		app.Env = append(app.Env, v.Name+"="+v.Value)
	}
	var reason strings.Builder
	app.Stderr = &reason
	out, err := app.Output()
	if err != nil {
		return "", fmt.Errorf("the application: %w: %s", err, &reason)
	}
	return string(out), nil
}

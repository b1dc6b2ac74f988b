package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/internal/testing/podscenario"
	"github.com/workloadid/workloadid/podidentity/proxy"
)

// call plays the kubelet: it writes the pod's token, starts the sidecar and
// then the application.
func (d *demo) call(ctx context.Context) error {
	if err := d.startSidecar(ctx); err != nil {
		return err
	}
	arn, err := d.startApp(ctx, &d.Pod.Spec.Containers[0])
	if err != nil {
		return err
	}
	d.Step(
		"The demo plays the pod: the sidecar fetches credentials with the pod's token, and an application with an unmodified AWS SDK asks STS for its identity.")
	d.Detail("answer", "%s", arn)
	return nil
}

func (d *demo) startSidecar(ctx context.Context) error {
	file := filepath.Join(d.Dir, "token")
	if err := os.WriteFile(file, []byte(d.Token), 0o600); err != nil {
		return err
	}
	sidecar := &d.Pod.Spec.InitContainers[0]
	p, err := proxy.New(proxy.Options{Server: argument(sidecar, "--server="), TokenFile: file,
		CA:     []byte(variable(sidecar, "WORKLOADID_SERVER_CA")),
		Secret: variable(sidecar, "AWS_CONTAINER_AUTHORIZATION_TOKEN")})
	if err != nil {
		return err
	}
	listeners, err := proxy.Listen(ctx, argument(sidecar, "--listen="))
	if err != nil {
		return err
	}
	d.Go("fetch credentials", func() error { return p.Run(ctx) })
	d.Go("sidecar", func() error { return proxy.Serve(ctx, p, listeners) })
	return nil
}

func argument(c *corev1.Container, prefix string) string {
	for _, arg := range c.Args {
		if value, ok := strings.CutPrefix(arg, prefix); ok {
			return value
		}
	}
	return ""
}

func variable(c *corev1.Container, name string) string {
	i := slices.IndexFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == name })
	if i < 0 {
		return ""
	}
	return c.Env[i].Value
}

// startApp runs the application with the variables of its container. The others
// lead to the fake AWS instead of the network.
func (d *demo) startApp(ctx context.Context, container *corev1.Container) (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	app := exec.CommandContext(ctx, program, appCommand) //nolint:gosec // this program
	if app.Env, err = d.Cloud.ProxyEnv(d.Dir); err != nil {
		return "", err
	}
	app.Env = append(app.Env, "HOME="+d.Dir, "AWS_REGION="+podscenario.Region)
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

// appCommand makes this program play the application.
const appCommand = "app"

// runApp knows the AWS SDK and its own environment.
func runApp(ctx context.Context, out io.Writer) error {
	loaded, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	who, err := sts.NewFromConfig(loaded).GetCallerIdentity(ctx, nil)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(out, *who.Arn)
	return err
}

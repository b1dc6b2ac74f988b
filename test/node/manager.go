//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/go-logr/logr"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/registration/ocm"
)

// cluster is the node with its control plane and its cloud, as the checks see
// them.
type cluster struct {
	*node
	client.Client
	config *rest.Config
	cloud  *cloudtest.Cloud
}

// manage starts the node and runs the checks.
func manage(ctx context.Context, dir string, o options) error {
	ctrl.SetLogger(logr.Discard())
	if err := isolate(ctx, dir); err != nil {
		return err
	}
	r := &runner{only: o.run}
	c := &cluster{}
	if err := r.step(ctx, "the node is ready", 2*time.Minute, func(ctx context.Context) error {
		return c.start(ctx, dir)
	}); err != nil {
		return err
	}
	r.cluster = c
	r.all(ctx)
	return r.result()
}

func (c *cluster) start(ctx context.Context, dir string) (err error) {
	if err := os.MkdirAll(filepath.Join(dir, "logs"), 0o700); err != nil {
		return err
	}
	if c.cloud, err = startCloud(context.WithoutCancel(ctx), dir); err != nil {
		return err
	}
	if c.node, err = startNode(ctx, dir); err != nil {
		return err
	}
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.admin()); err != nil {
		return err
	}
	c.config.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		ocm.AddToScheme(scheme)); err != nil {
		return err
	}
	if err := c.until(ctx, time.Minute, "the API server answers", func(context.Context) (err error) {
		c.Client, err = client.New(c.config, client.Options{Scheme: scheme})
		return err
	}); err != nil {
		return err
	}
	if err := startNames(context.WithoutCancel(ctx), c.Client); err != nil {
		return err
	}
	if err := errors.Join(c.bootstrap(ctx), c.contexts(), c.importImages(ctx)); err != nil {
		return err
	}
	return c.until(ctx, time.Minute, "the node is ready", c.ready)
}

// bootstrap does what kubeadm init does after it has started the control plane.
func (c *cluster) bootstrap(ctx context.Context) error {
	bind := func(name, role, group string) error {
		return c.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}}})
	}
	_, err := command(ctx, program("kubeadm"), "init", "phase", "bootstrap-token", "--config="+c.path("kubeadm.yaml"),
		"--kubeconfig="+c.admin(), "--skip-token-print")
	return errors.Join(err, bind("kubeadm:cluster-admins", "cluster-admin", "kubeadm:cluster-admins"),
		// AWS reads the keys of the issuer without a credential.
		bind("issuer-discovery", "system:service-account-issuer-discovery", "system:unauthenticated"))
}

func (c *cluster) ready(ctx context.Context) error {
	var node corev1.Node
	if err := c.Get(ctx, client.ObjectKey{Name: nodeName}, &node); err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("conditions: %+v", node.Status.Conditions)
}

// sh runs commands as the documents print them: wid and kubectl are on the
// PATH, and the contexts hub and managed-0 lead to the node.
func (c *cluster) sh(ctx context.Context, script string) (string, error) {
	return runCommand(c.shell(ctx, script))
}

func (c *cluster) shell(ctx context.Context, script string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script) //nolint:gosec // commands of the documents
	cmd.Env = append(os.Environ(), "PATH="+c.path("bin")+":"+os.Getenv("PATH"), "KUBECONFIG="+c.path("kubeconfig"),
		"HOME="+c.dir)
	cmd.Dir = c.dir
	return cmd
}

// apply applies manifests.
func (c *cluster) apply(ctx context.Context, manifests string) error {
	cmd := c.shell(ctx, "kubectl apply -f -")
	cmd.Stdin = strings.NewReader(manifests)
	_, err := runCommand(cmd)
	return err
}

// contexts writes the kubeconfig of a person with two clusters, which are one
// here.
func (c *cluster) contexts() error {
	config, err := clientcmd.LoadFromFile(c.admin())
	if err != nil {
		return err
	}
	for _, name := range []string{"hub", "managed-0"} {
		config.Contexts[name] = config.Contexts[config.CurrentContext]
	}
	return errors.Join(clientcmd.WriteToFile(*config, c.path("kubeconfig")),
		os.Symlink(program("kubectl"), c.path("bin", "kubectl")))
}

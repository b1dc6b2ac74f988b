package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/podidentity/webhook"
)

// webhookPath is the path in the MutatingWebhookConfiguration.
const webhookPath = "/pods"

type webhookOptions struct {
	common
	image, server    string
	port             int
	requests, limits map[string]string
	cpuLimit         string
}

// resources parses the flags of the sidecar's resources. Empty ones leave the
// defaults to the webhook.
func (o *webhookOptions) resources() (r corev1.ResourceRequirements, cpuLimit resource.Quantity, err error) {
	parse := func(flag string, from map[string]string) corev1.ResourceList {
		if len(from) == 0 {
			return nil
		}
		list := corev1.ResourceList{}
		for name, text := range from {
			quantity, parseErr := resource.ParseQuantity(text)
			if parseErr != nil {
				err = errors.Join(err, fmt.Errorf("--%s: %q is no quantity of %q: use one such as 16Mi or 5m", flag, text, name))
			}
			list[corev1.ResourceName(name)] = quantity
		}
		return list
	}
	r.Requests, r.Limits = parse("sidecar-requests", o.requests), parse("sidecar-limits", o.limits)
	if o.cpuLimit != "" {
		cpuLimit = parse("sidecar-cpu-limit", map[string]string{"cpu": o.cpuLimit})["cpu"]
	}
	return r, cpuLimit, err
}

// bindResources adds the flags of the sidecar's resources.
func (o *webhookOptions) bindResources(f *pflag.FlagSet) {
	text := func(list corev1.ResourceList) map[string]string {
		all := map[string]string{}
		for name, quantity := range list {
			all[string(name)] = quantity.String()
		}
		return all
	}
	usual, cpu := webhook.DefaultResources(), webhook.DefaultCPULimit()
	f.StringToStringVar(&o.requests, "sidecar-requests", text(usual.Requests),
		"resources that the sidecar requests; a LimitRange may ask for more")
	f.StringToStringVar(&o.limits, "sidecar-limits", text(usual.Limits), "limits of the sidecar's resources")
	f.StringVar(&o.cpuLimit, "sidecar-cpu-limit", cpu.String(),
		"CPU limit of the sidecar in pods whose containers all have one, as in a namespace with a quota on limits.cpu")
}

// runWebhook runs until ctx ends, then lets requests finish.
func runWebhook(ctx context.Context, kube *rest.Config, o webhookOptions) error {
	host, text, err := net.SplitHostPort(o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("--listen: port %q: use a number", text)
	}
	resources, cpuLimit, err := o.resources()
	if err != nil {
		return err
	}
	https := ctrlwebhook.NewServer(ctrlwebhook.Options{Host: host, Port: port, CertDir: o.certs,
		TLSOpts: []func(*tls.Config){oneRequestAConnection}})
	mgr, err := newManager(kube, o.common,
		ctrl.Options{WebhookServer: https, Cache: cache.Options{DefaultTransform: stripForWebhook}})
	if err != nil {
		return err
	}
	handler,
		err := webhook.New(webhook.Options{Bindings: mgr.GetClient(), Live: mgr.GetAPIReader(), Image: o.image,
		Server: o.server, CA: o.readCA,
		Audience: o.audience, Port: o.port, Resources: resources, CPULimit: cpuLimit, Logger: ctrl.Log.WithName("webhook"),
		Registerer: o.registerer})
	if err != nil {
		return err
	}
	mgr.GetWebhookServer().Register(webhookPath, handler) // which also adds the server to the manager
	mgr.GetWebhookServer().Register(webhook.BindingsPath, handler)
	// The informer starts with the manager instead of with the first pod.
	if _, err := mgr.GetCache().GetInformer(ctx, &v1alpha1.IAMBinding{}, cache.BlockUntilSynced(false)); err != nil {
		return err
	}
	if err := errors.Join(mgr.AddReadyzCheck("https", https.StartedChecker()),
		mgr.AddReadyzCheck("bindings", canList(mgr.GetClient()))); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// stripForWebhook leaves of a binding the ServiceAccount and the containers.
func stripForWebhook(cached any) (any, error) {
	if b, ok := cached.(*v1alpha1.IAMBinding); ok {
		b.Spec.AWS, b.Status = v1alpha1.AWSRole{}, v1alpha1.IAMBindingStatus{}
	}
	return strip(cached)
}

// oneRequestAConnection turns HTTP/2 off. The webhook bounds the memory of each
// connection.
func oneRequestAConnection(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }

// canList checks that the informer has synced.
func canList(bindings client.Reader) healthz.Checker {
	const patience = 5 * time.Second
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		return bindings.List(ctx, &v1alpha1.IAMBindingList{}, client.Limit(1))
	}
}

package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
)

func serviceAccount(namespace, name, roleARN string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Annotations: map[string]string{aws.RoleARNAnnotation: roleARN}}}
}

// runEmbedded sets up two tenants. Each has a ServiceAccount "app" and a role.
func runEmbedded(ctx context.Context, f flags, p *printer) error {
	d, err := newDemo(f.region)
	if err != nil {
		return err
	}
	defer d.close()
	issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{})
	if err != nil {
		return err
	}
	d.cloud.AWS().AddOIDCProvider(accountID, issuer.URL(), issuer.HTTPClient(), aws.DefaultAudience)
	var objects []client.Object
	var keys []client.ObjectKey
	for _, tenant := range []string{"tenant-a", "tenant-b"} {
		d.cloud.AWS().SetRole(roleOf(tenant),
			cloudtest.Trust{Issuer: issuer.URL(), Subjects: []string{"system:serviceaccount:" + tenant + ":app"}})
		sa := serviceAccount(tenant, "app", roleOf(tenant))
		objects, keys = append(objects, sa), append(keys, client.ObjectKeyFromObject(sa))
	}
	kube := issuer.Client(objects...)
	d.client = kube

	p.note("Cluster and cloud are simulated; nothing leaves this machine.")
	p.heading("Two tenants, each with a role of its own, ask twice")
	if err := d.table(ctx, p, keys...); err != nil {
		return err
	}
	refusals, err := d.refusals(ctx, kube, keys[0])
	if err != nil {
		return err
	}
	p.heading("What is refused, and what the user reads")
	for _, r := range refusals {
		p.refusal(r)
	}
	return nil
}

// refusals tries what tenant A should not be able to do.
func (d *demo) refusals(ctx context.Context, kube *cloudtest.Client, app client.ObjectKey) ([]refusal, error) {
	object := cache.InvolvedObject{Kind: "Bucket", Namespace: app.Namespace, Name: "artifacts", Operation: "quickstart"}
	var all []refusal
	try := func(what string, sa client.ObjectKey) error {
		_, err := d.credentials(ctx, sa, object)
		r, err := refused(what, err)
		all = append(all, r)
		return err
	}
	thief := serviceAccount(app.Namespace, "thief", roleOf("tenant-b"))
	typo := serviceAccount(app.Namespace, "typo", "arn:aws:iam::1234:role/tenant-a")
	for _, sa := range []client.Object{thief, typo} {
		if err := kube.Create(ctx, sa); err != nil {
			return nil, err
		}
	}
	if err := try("tenant-a asks for the role of tenant-b", client.ObjectKeyFromObject(thief)); err != nil {
		return nil, err
	}
	if err := kube.Delete(ctx, serviceAccount(app.Namespace, app.Name, "")); err != nil {
		return nil, err
	}
	if err := try("the ServiceAccount is deleted; its credentials are still cached", app); err != nil {
		return nil, err
	}
	return all, try("the annotation is malformed", client.ObjectKeyFromObject(typo))
}

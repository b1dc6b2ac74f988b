package aws_test

import (
	"github.com/aws/aws-sdk-go-v2/service/sts"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cache"
)

// TenantClient returns an AWS client that acts as the ServiceAccount that the object names.
func (r *Reconciler) TenantClient(obj *corev1.ConfigMap) *sts.Client {
	credentials := r.AWS.NewCredentialsProvider(
		auth.WithServiceAccount(client.ObjectKey{Namespace: obj.Namespace, Name: obj.Data["serviceAccountName"]}, r.Client),
		auth.WithCache(r.Tokens, cache.InvolvedObject{Kind: "ConfigMap", Namespace: obj.Namespace, Name: obj.Name, Operation: "reconcile"}),
		auth.WithSTSRegion(obj.Data["region"]),
	)
	return sts.New(sts.Options{Region: obj.Data["region"], Credentials: credentials})
}

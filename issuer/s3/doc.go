// Package s3 keeps the documents of an issuer in a bucket of Amazon S3, or of a
// compatible service with conditional writes, such as MinIO. Programs that run
// an [issuer.Publisher] use it. The example of the package writes and reads a
// document.
//
// The publisher needs the permissions s3:GetObject and s3:PutObject on the
// objects, and s3:ListBucket on the bucket. Without s3:ListBucket, S3 answers
// AccessDenied for a missing file.
//
// The issuer is the address of the bucket's REST endpoint,
// https://my-oidc-bucket.s3.eu-central-1.amazonaws.com/cluster-1, or of a
// CloudFront distribution in front of it. The REST endpoint needs a bucket
// policy that allows public reads. With CloudFront, Block Public Access stays
// on. The website endpoints of S3 lack https and cannot serve an issuer.
package s3

#!/bin/bash
# What a first boot on AWS asks, as a script asks it: three values of the metadata service, the number of pods from a map,
# and a file for the kubelet. Usage: metadata.sh SERVICE MAP FILE
set -o errexit -o nounset -o pipefail

ask() {
	curl --silent --fail --header "X-aws-ec2-metadata-token: $token" "$service/latest/meta-data/$1"
}

service=$1 map=$2 file=$3
token=$(curl --silent --fail --request PUT --header 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$service/latest/api/token")
address=$(ask local-ipv4)
instance=$(ask instance-id)
kind=$(ask instance-type)
pods=
while read -r name count; do
	if [[ $name == "$kind" ]]; then
		pods=$count
		break
	fi
done <"$map"
printf 'NODE_IP=%s\nINSTANCE_ID=%s\nINSTANCE_TYPE=%s\nMAX_PODS=%s\n' "$address" "$instance" "$kind" "$pods" >"$file"

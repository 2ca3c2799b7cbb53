module nodestrap.local/torcx-generator

go 1.26

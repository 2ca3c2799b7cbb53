module nodestrap.io/catalog

go 1.22.0

CREATE TABLE "books" (
	"id" uuid PRIMARY KEY NOT NULL,
	"state" text NOT NULL,
	"version" bigint NOT NULL,
	"created_date" timestamp with time zone NOT NULL,
	"updated_date" timestamp with time zone NOT NULL,
	"title" text NOT NULL,
	"on_shelf" integer NOT NULL
);

import type { ActionExecutor, DatabaseRegistry, ExecutorOptions, FrameworkConfig } from '@framework/core';
import type { OperatorCommands } from '@framework/drizzle-adapter';
import type { RoleOptions } from '@framework/postgres-admin';
import type { AnyEventHandler, Delivery } from '@framework/events';
import type { ApiInfo, HttpApi, ProblemKinds, Route, ServedRelay } from '@framework/http';
import type { Authentication, HttpSettings, securitySchema } from '@framework/http/security';
import type { ServerLimits } from '@framework/http/server';
import type { OperatorExtension } from '@framework/operator';
import type { Relay, RelayState } from '@framework/relay';
import type { PublishedModel } from '@framework/relay/asyncapi';
import type { Server } from 'node:http';
import type { SecureContextOptions } from 'node:tls';
import type * as z from 'zod';

/** An application: what it consists of, without where it runs. */
export interface ServiceDefinition<A extends Application = Application> extends ServiceDescription {
  /** Makes the parts of the application, as a plain object. It must not wait for the databases, which may not answer yet. */
  readonly compose: (context: CompositionContext) => A;
  /** Default: the application answers no requests. */
  readonly http?: HttpDefinition<A>;
}

/** What a service is called and what belongs to it, besides its code. */
export interface ServiceDescription {
  /**
   * In lower case, such as `wallet`. From it come the variables of the process (`WALLET_CONFIG`), the name in logs, problems and tokens
   * (`wallet-service`), the roles of databases (`wallet_migrator`) and, without a configuration, the namespace (`com.example.wallet`).
   */
  readonly name: string;
  /** The events that relays publish, as AsyncAPI describes them. Default: no document. */
  readonly events?: PublishedEvents;
  /** The folder of the application's migrations, as Drizzle Kit writes them. Default: those of the framework only. */
  readonly migrationsFolder?: string;
  /** What the roles of `roles apply` may do with the application's tables. Default: as `grantRoles` has it. */
  readonly tables?: RoleOptions['tables'];
  /** The commands in messages about databases that are not ready. Default: this program with an argument. */
  readonly commands?: OperatorCommands & {
    /** The command line's `doctor`. Default: `npx framework doctor`. */
    readonly doctor?: string;
  };
  /** Schemas with which the application adds keys of its own to sections of the configuration. Default: those of the packages. */
  readonly sections?: SectionsOfApplication;
  /** The databases of a process without a configuration. Default: one shard. */
  readonly embedded?: EmbeddedDefinition;
  /** What the argument `demo` starts. Default: there is no demonstration. */
  readonly demo?: Demonstration;
}

/** The parts of an application that every service has. Others, such as repositories for routes, may be beside them. */
export interface Application {
  readonly repositories: ExecutorOptions['repositories'];
  readonly actions: ExecutorOptions['actions'];
  /** Whether every action must have a policy. Default false. */
  readonly requirePolicies?: boolean;
  /** The same in all processes that deliver. Default: none. */
  readonly handlers?: readonly AnyEventHandler[];
  /** What operators see of the application. Default: what they see of every one. */
  readonly extensions?: readonly OperatorExtension[];
}

/** What an application is made from. */
export interface CompositionContext {
  readonly config: FrameworkConfig;
  readonly databases: DatabaseRegistry;
}

/** The application with what the framework runs it by, as its routes see it. */
export type Service<A extends Application = Application> = A & ServiceParts;

/** What the framework runs an application by. */
export interface ServiceParts {
  /** Begins the types and topics of its events. */
  readonly namespace: string;
  readonly databases: DatabaseRegistry;
  readonly executor: ActionExecutor;
  /** Delivers committed events to their handlers, or notifies the processes that do. */
  readonly delivery: Pick<Delivery, 'start' | 'started' | 'startedOn' | 'stop' | 'restartNeed'>;
  /** The configured relays, whether or not they run in this process. */
  readonly relays: readonly OperatedRelay[];
  /** Identifies the sender of a request; `undefined` when requests need no token. */
  readonly authentication: Authentication | undefined;
}

/** A relay whose health the service reports, and that operators let publish events again. */
export interface OperatedRelay extends ServedRelay, Pick<Relay, 'publishAgain' | 'wants'> {
  readonly state: () => RelayState | undefined;
}

/** How an application is served over HTTP. */
export interface HttpDefinition<A extends Application = Application> {
  readonly info: ApiInfo;
  readonly routes: readonly Route[] | ((service: Service<A>) => readonly Route[]);
  /** The application's own problems. Default: those of every service. */
  readonly problems?: ProblemKinds;
  /** A first request to try, as a command for a terminal, once a shard is ready; `undefined` for none. Default: none. */
  readonly example?: (service: ReadyService) => string | undefined;
  /** Serves the API with another framework for HTTP, such as Fastify or NestJS. Default: with Hono, by an `HttpServer`. */
  readonly serve?: (api: HttpApi, options: ServeOptions) => Promise<ServedApi>;
}

/** Where and how an API is to be served. */
export interface ServeOptions {
  readonly host: string;
  /** 0 means any free one. */
  readonly port: number;
  readonly limits: ServerLimits;
  /** The certificate and its key, if the configuration has them: then nothing must be answered without TLS. */
  readonly tls: SecureContextOptions | undefined;
  /** The section `framework.http`. */
  readonly settings: HttpSettings;
}

/** An API that is being served. */
export interface ServedApi {
  /** Its address, such as `http://127.0.0.1:8080`. */
  readonly url: string;
  /** Accepts nothing more, and resolves when all running requests are answered. */
  readonly close: () => Promise<void>;
  /**
   * The server of Node, such as `app.server` of Fastify and `app.getHttpServer()` of NestJS: the service ends the connections on which no
   * request runs when it closes. Default: `close` does that.
   */
  readonly server?: Server;
}

/** The events of an application, as AsyncAPI describes them. */
export interface PublishedEvents {
  readonly title: string;
  readonly version: string;
  readonly description?: string;
  readonly models: readonly PublishedModel[];
}

/** Schemas of sections, with keys of an application beside those of the packages. */
export interface SectionsOfApplication {
  readonly http?: z.ZodType<HttpSettings>;
  readonly security?: z.ZodType<z.output<typeof securitySchema>>;
}

/** The embedded databases of an application. */
export interface EmbeddedDefinition {
  /** Where their data is. Default: `.data/postgres` in the working directory. */
  readonly folder?: string;
  /** The groups of the shards, each with one shard and a database of the same name. Default: one with the name of the application. */
  readonly groups?: readonly string[];
  /** The file of the module by which the command line knows the application: see `operatorModule`. Default: none. */
  readonly operatorModule?: string;
}

/** A trial of the service on embedded databases of its own, with generated traffic. */
export interface Demonstration {
  /** Where its data is. Default: `.data/demo` in the working directory. */
  readonly folder?: string;
  /** Handlers besides the application's own. Default: none. */
  readonly handlers?: readonly AnyEventHandler[];
  /** The section `framework.delivery`. Default: the packages' own settings. */
  readonly delivery?: FrameworkConfig['delivery'];
  /** Generates the traffic of the demonstration, from when the service is ready until the signal aborts. */
  readonly run: (service: ReadyService) => Promise<void>;
}

/** A service that answers requests. */
export interface ReadyService {
  readonly url: string;
  readonly needsToken: boolean;
  /** The shards that are ready. */
  readonly shards: DatabaseRegistry['shards'];
  /** Prints a line for people. */
  readonly say: (line: string) => void;
  /** Aborts when the process stops. */
  readonly signal: AbortSignal;
}

export { runService, type HostProcess } from './run-service.js';
export type {
  Application,
  CompositionContext,
  Demonstration,
  EmbeddedDefinition,
  HttpDefinition,
  OperatedRelay,
  PublishedEvents,
  ReadyService,
  SectionsOfApplication,
  ServeOptions,
  ServedApi,
  Service,
  ServiceDefinition,
  ServiceDescription,
  ServiceParts,
} from './service-definition.js';
export { operatorModule } from './operator-module.js';
export { type DeliveryHooks, type OpenServiceOptions, openService } from './open-service.js';
export type { ListenOptions } from './listeners/http-listener.js';
export { type RunningService, type StartOptions, startService } from './start/start-service.js';
export type { ServiceRole } from './settings/service-settings.js';

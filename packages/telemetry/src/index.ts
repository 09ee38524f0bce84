export { Telemetry, type TelemetryOptions } from './telemetry.js';
export { type DeliveryGaugesOptions, observeDelivery } from './delivery-gauges.js';
export { type PoolGaugesOptions, observePools } from './pool-gauges.js';
export type { MeterProviders } from './meters.js';
